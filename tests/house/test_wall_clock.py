"""The wall clock may be wrong and must not decide what is deleted: each reader is listed, with its purpose."""

from __future__ import annotations

import ast

from tests.house.source import PACKAGE, judge, modules_under, nodes_of

READERS = {
    "raftlog/admin/kafka_rest/records.py": "a reply says when it was made",
    "raftlog/admin/metrics_own.py": "how long a transaction has been open, for people",
    "raftlog/admin/native/broker_facts.py": "shown beside the start of a process",
    "raftlog/admin/native/measures.py": "dates a measurement, for rates on a page",
    "raftlog/admin/native/clock.py": "shows it",
    "raftlog/admin/native/overview.py": "shows it",
    "raftlog/admin/native/quorum.py": "how long ago a voter was heard of, for people",
    "raftlog/admin/process_facts.py": "when the process started",
    "raftlog/admin/samples.py": "dates samples, of which there is a bounded number",
    "raftlog/admin/view.py": "when the node started",
    "raftlog/base/env.py": "is the port",
    "raftlog/base/record_ages.py": "decides whether it is believed",
    "raftlog/broker/coordination/hanging_transactions.py": "lists what an operator may end",
    "raftlog/broker/coordination/share_record.py": "dates deliveries, for people; their number is bounded",
    "raftlog/broker/handlers/list_transactions.py": "filters by duration",
    "raftlog/broker/handlers/shared/share_deliveries.py": "shows how long locks last",
    "raftlog/broker/handlers/produce.py": "stamps, no earlier than the believed time",
    "raftlog/broker/network/login.py": "refuses tokens; the server hands it the later of the two times",
    "raftlog/broker/network/token_keys.py": "refuses tokens of an identity provider",
    "raftlog/broker/replicas/log_directories.py": "dates what has no timestamp, no earlier than the believed time",
    "raftlog/cli/bench/command.py": "measures",
    "raftlog/cli/doctor/network.py": "compares it",
    "raftlog/cli/group_reset.py": "what a person asks for",
    "raftlog/cli/produce.py": "stamps records, as clients do",
    "raftlog/cli/tombstones.py": "compares it with the times of records, for a warning",
    "raftlog/cli/transaction.py": "shows it",
    "raftlog/metadata/quorum_description.py": "when observers were heard of, for people",
    "raftlog/controller/admin_requests.py": "makes, renews and refuses tokens; expired ones go by the believed time",
    "raftlog/faults/node_faults.py": "is the port, with a fault",
    "raftlog/quorum/observer_feed.py": "when observers were heard of, for people",
    "raftlog/quorum/quorum.py": "when voters were heard of, for people",
}
"""Code that deletes for its age asks `Env.ages.now_ms()` instead. A further file needs a reason that is none of age."""


def test_each_reader_of_the_wall_clock_is_listed() -> None:
    """A new reader might delete by a clock that is wrong."""
    found = {
        module.name
        for module in modules_under(PACKAGE)
        if any(_reads_the_wall_clock(node.func) for node in nodes_of(module.tree, ast.Call))
    }
    judge(found, frozenset(READERS))


def _reads_the_wall_clock(called: ast.expr) -> bool:
    match called:
        case ast.Attribute(attr="wall_clock_ms" | "_wall_clock_ms"):
            return True
        case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns"):
            return True
        case _:
            return False
