"""House rule: what a client or peer can make fail costs its connection, never the node.

The loop's exception handler ends the node, since an exception in a callback counts as a broken invariant. So callbacks,
tasks and protocol methods in rooms with connections run under a guard (`raftlog/base/guard.py`). The tables here list
the exceptions, with their reasons. The tables only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import PACKAGE, Module, judge, modules_under, nodes_of

ROOMS = frozenset({"admin", "broker", "control", "loop_watch", "quorum"})

CALLBACK_AT = {
    "add_done_callback": 0,
    "call_at": 1,
    "call_later": 1,
    "call_soon": 0,
    "call_soon_threadsafe": 0,
    "create_task": 0,
    "ensure_future": 0,
}
"""Calls that hand something to the loop, and which of their arguments that is."""

PROTOCOL_METHODS = frozenset(
    {
        "buffer_updated",
        "connection_lost",
        "connection_made",
        "data_received",
        "eof_received",
        "get_buffer",
        "pause_writing",
        "resume_writing",
    }
)
GUARDS = frozenset({"crash", "guarded", "guarded_task", "run_guarded"})
HARMLESS = frozenset({"cast", "discard"})
"""Calls that cannot fail: a name for mypy, and leaving a set."""

OURS = {
    "raftlog/admin/auth.py: partial(self._looked, shown)": "counts a guess",
    "raftlog/admin/auth.py: self._shown(authorization, address)": "those who show it wait for what comes of it",
    "raftlog/admin/loop_lag.py: self._measure": "reads clocks",
    "raftlog/broker/long_work/arrivals.py: self._begin_turn": "each connection goes on under its guard",
    "raftlog/broker/coordination/group_coordinators.py: self._tick": "the clock of all groups of this broker",
    "raftlog/broker/network/deadlines.py: self._expire": "each waiter runs under its connection's guard",
    "raftlog/broker/long_work/object_memory.py: give": "counts bytes, and wakes those who wait for some",
    "raftlog/broker/replicas/fetcher.py: self._advance": "asks for what our own logs lack",
    "raftlog/broker/replicas/fetcher.py: self._hold_back": "reads our own quota",
    "raftlog/broker/replicas/fetcher.py: self._resume_paused": "notes which of our partitions to ask for",
    "raftlog/broker/replicas/fetcher.py: self._signal": "sets a future",
    "raftlog/broker/replicas/flusher.py: self._retry": "our own disk",
    "raftlog/broker/replicas/flusher.py: self._share_ended": "our own disk; those who wait have guards of their own",
    "raftlog/broker/replicas/flusher.py: self._turn": "as above",
    "raftlog/broker/replicas/flusher.py: then": "a fetcher's _advance, or sets a future, once our own disk is done",
    "raftlog/broker/handlers/write_txn_markers.py: waiter.answered": "sets a future",
    "raftlog/broker/replicas/missing_replicas.py: self._fire": "makes our own replicas",
    "raftlog/broker/replicas/log_directories.py: _note_removal": "our own folders",
    "raftlog/broker/replicas/log_directories.py: lambda _: self._remove_next(left_over)": "hands a folder to a thread",
    "raftlog/broker/producer_ids.py: self._fetched": "looks away from a failure that whoever waits has heard of",
    "raftlog/broker/replicas/replicas.py: partial(self._created, news)": "our own replicas",
    "raftlog/broker/replicas/replicas.py: self._create_missing": "our own replicas",
    "raftlog/broker/replicas/replicas.py: self._flush_due": "our own disk",
    "raftlog/broker/replicas/replicas.py: raise_failure": "our own replicas",
    "raftlog/broker/replicas/replicas.py: self._note_damage": "our own replicas",
    "raftlog/broker/replicas/replicas.py: self.wake_now": "sessions that are woken run under guards of their own",
    "raftlog/broker/replicas/replicas.py: self.logs.report": "our own disk",
    "raftlog/broker/network/server.py: self._sweep": "each connection is swept under its guard",
    "raftlog/broker/coordination/shards.py: answer": "sets a future",
    "raftlog/broker/coordination/shards.py: lambda _: timer.cancel()": "cancels a timer",
    "raftlog/broker/replicas/timeline.py: self._log_pending": "writes to our log",
    "raftlog/broker/coordination/transaction_coordinators.py: ended.cancel": "cancels a future",
    "raftlog/broker/coordination/share_state_coordinators.py: self._tick": "the clock of all share states here",
    "raftlog/broker/coordination/transaction_coordinators.py: self._tick": "the clock of all transactions here",
    "raftlog/broker/long_work/turns.py: self._run": "sets futures",
    "raftlog/broker/coordination/transaction_markers.py: again": "an outcome that nobody is told hangs for ever",
    "raftlog/broker/coordination/transaction_markers.py: raise_failure": "as above",
    "raftlog/broker/coordination/transaction_markers.py: self._begin": "as above",
    "raftlog/broker/coordination/transaction_markers.py: self._retry": "as above",
    "raftlog/broker/network/idle_connections.py: self._check_all": "each connection is looked at under its guard",
    "raftlog/control.py: raise_failure": "a controller that does not know who is alive must not go on",
    "raftlog/loop_watch.py: self._measure": "reads the clock",
    "raftlog/quorum/quorum.py: self._log": "writes to our log",
    "raftlog/control.py: self._tick": "the controller's clock",
    "raftlog/quorum/client.py: partial(self._dialled, target)": "whoever asked has heard of its failure",
    "raftlog/quorum/snapshot_generator.py: partial(self._written, applied_index)": "our own journal",
    "raftlog/quorum/driver.py: self._guarded": "catches all, and stops this voter",
    "raftlog/quorum/driver.py: self._wake": "the voter's clock: one that fails there must not vote",
    "raftlog/quorum/observer_feed.py: self._tick": "each observer is served under its channel's guard",
    "raftlog/quorum/voter_proposal.py: asyncio.Future.exception": "marks the error as read",
    "raftlog/quorum/raft_links.py: raise_failure": "a voter that no longer dials the others must not go on",
    "raftlog/quorum/raft_links.py: self._watch": "each link is looked at under its guard",
    "raftlog/quorum/observer.py: raise_failure": "an observer that no longer follows must not go on",
    "raftlog/broker/handlers/shared/share_reader.py: self._end_wait": "sets an event",
    "raftlog/quorum/snapshot_sender.py: self._let_go": "lets go of a snapshot",
    "raftlog/quorum/snapshot_sender.py: self._took": "our own disk; observers are served under guards of their own",
    "raftlog/quorum/journal_writer.py: partial(self._done, job, stage)": "our own journal: see `Driver._guarded`",
    "raftlog/quorum/journal_writer.py: self._to_thread": "our own journal",
}
"""Callbacks outside a guard. Their failure ends the node on purpose: our own invariant is broken."""

TASKS = {
    "raftlog/broker/long_work/turns.py: work": "its request awaits it",
    "raftlog/broker/handlers/delete_groups.py: _finish(broker, group_id, begun)": "as above",
    "raftlog/admin/server.py: self._sweep()": "closes each connection under a guard",
    "raftlog/admin/schema_registry/server.py: store.follow()": "catches its log's failures, and reads again",
    "raftlog/admin/schema_registry/schema_copy.py: self._attempt(call)": "catches all, and a later request reads again",
    "raftlog/admin/samples.py: self._run()": "adds up counts of this node",
    "raftlog/broker/links/broker_links.py: self._open()": "catches all, who asked hears that there is no connection",
    "raftlog/broker/replicas/fetcher.py: self._run()": "catches all, and connects again",
    "raftlog/broker/replicas/housekeeping.py: _every(interval, chore)": "our own logs",
    "raftlog/broker/replicas/isr_changes.py: self._send_all()": "asks the controller",
    "raftlog/broker/replicas/fetchers.py: self._fetchers.pop(leader).close()": "ends our own fetcher",
    "raftlog/broker/producer_ids.py: self._fetch_block()": "asks the controller; who waits hears of its failure",
    "raftlog/broker/replicas/replicas.py: self._dismiss_the_others()": "see its done callback",
    "raftlog/broker/coordination/shard.py: self._begin()": "reads our own log back",
    "raftlog/broker/coordination/shards.py: self._create()": "asks the controller; who waits hears of its failure",
    "raftlog/broker/coordination/transaction_markers.py: self._work_off(link)": "see its done callback",
    "raftlog/broker/coordination/transaction_verification.py: self._work_off(link)": "catches all failures",
    "raftlog/control.py: coroutine": "see its done callback; `probe` makes a word of what peers do",
    "raftlog/quorum/client.py: self._dial(target)": "whoever asked hears of its failure",
    "raftlog/quorum/raft_links.py: coroutine": "see its done callback",
    "raftlog/quorum/observer.py: self._follow_somebody()": "see its done callback",
    "raftlog/quorum/rpc.py: work": "catches all, and answers with an error",
}
"""Tasks outside a guard. Their exceptions are only logged, but where a done callback raises them again."""

METHODS = {
    "raftlog/broker/links/probe.py: _FirstBytes.connection_lost": "sets a future",
    "raftlog/broker/links/probe.py: _FirstBytes.data_received": "sets a future",
    "raftlog/quorum/channel.py: Channel.connection_lost": "leaves tables; its user is told under a guard",
}
"""Methods that a transport calls, outside a guard."""


def faces_others() -> Iterator[Module]:
    return (module for module in modules_under(PACKAGE) if module.room in ROOMS)


def test_callbacks_and_tasks_run_under_a_guard_or_stand_in_a_table() -> None:
    """One bad response ended node after node: a cold read answered a fetch, and the response could not be encoded."""
    found = {
        f"{module.name}: {ast.unparse(given)}"
        for module in faces_others()
        for given in _given_to_the_loop(module.tree)
        if not _is_guarded_call(given)
    }
    judge(found, frozenset(OURS) | frozenset(TASKS))


def test_protocol_methods_run_under_a_guard_or_stand_in_a_table() -> None:
    """asyncio calls connection_made and connection_lost as callbacks: what they raise ends the node."""
    found = {
        f"{module.name}: {owner.name}.{method.name}"
        for module in faces_others()
        for owner in nodes_of(module.tree, ast.ClassDef)
        if _is_protocol(owner)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name in PROTOCOL_METHODS
        if any(_outside_of_guards(statement) for statement in method.body)
    }
    judge(found, frozenset(METHODS))


def test_the_rule_sees_what_it_is_for() -> None:
    """It finds a callback without a guard, and a method with its last statement outside of the guard."""
    tree = ast.parse(
        "loop.call_later(1, self._tick)\nloop.call_soon(self.guarded(f))\ntask.add_done_callback(tasks.discard)"
    )
    assert [_is_guarded_call(each) for each in _given_to_the_loop(tree)] == [False, True, True]
    guarded = "try:\n    self.take(data)\nexcept Exception:\n    self.crash('x')"
    assert [_outside_of_guards(each) for each in ast.parse(f"{guarded}\nself.done()").body] == [False, True]


def _given_to_the_loop(tree: ast.Module) -> Iterator[ast.expr]:
    for node in nodes_of(tree, ast.Call):
        if isinstance(node.func, ast.Attribute):
            position = CALLBACK_AT.get(node.func.attr, len(node.args))
            if position < len(node.args):
                yield node.args[position]


def _is_guarded_call(given: ast.expr) -> bool:
    if isinstance(given, ast.Call):
        return _name(given.func) in GUARDS
    return _name(given) in HARMLESS


def _is_protocol(owner: ast.ClassDef) -> bool:
    return any(ast.unparse(base).startswith("asyncio.") for base in owner.bases)


def _outside_of_guards(node: ast.AST) -> bool:
    """Return whether it contains a call that is neither a guard nor inside a `try` with a guard as its handler."""
    if isinstance(node, ast.Call):
        return _name(node.func) not in GUARDS | HARMLESS
    if isinstance(node, ast.Try) and _is_guard(node):
        return any(map(_outside_of_guards, (*node.orelse, *node.finalbody)))
    return any(map(_outside_of_guards, ast.iter_child_nodes(node)))


def _is_guard(node: ast.Try) -> bool:
    return any(
        handler.type is not None
        and ast.unparse(handler.type) == "Exception"
        and any(isinstance(each, ast.Call) and _name(each.func) == "crash" for each in ast.walk(handler))
        for handler in node.handlers
    )


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
