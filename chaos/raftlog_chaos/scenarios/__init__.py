"""Scenarios of the simulator, different with every seed: a cluster, its clients, its faults, and what must hold
afterwards.

A scenario is `async def name(loop, seconds)`; it raises AssertionError when a promise was broken. A new scenario is a
file here and a line in `SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raftlog_chaos.scenarios.believed_time import believed_time
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.clean_stop import clean_stop
from raftlog_chaos.scenarios.clock_jumps import clock_jumps
from raftlog_chaos.scenarios.commits import commits
from raftlog_chaos.scenarios.compaction import compaction
from raftlog_chaos.scenarios.consumer_churn import consumer_churn, group_migration
from raftlog_chaos.scenarios.corruption import corruption
from raftlog_chaos.scenarios.cut_off import cut_off
from raftlog_chaos.scenarios.decommissions import decommissions
from raftlog_chaos.scenarios.disk_errors import disk_errors
from raftlog_chaos.scenarios.double_failover import double_failover
from raftlog_chaos.scenarios.eligible_leaders import eligible_leaders
from raftlog_chaos.scenarios.emptied_segments import emptied_segments
from raftlog_chaos.scenarios.endurance import endure
from raftlog_chaos.scenarios.exactly_once import exactly_once, exactly_once_alone, exactly_once_groups
from raftlog_chaos.scenarios.fetch_sessions import fetch_sessions
from raftlog_chaos.scenarios.first_batches import first_batches
from raftlog_chaos.scenarios.follower_reads import follower_reads
from raftlog_chaos.scenarios.full_disk import full_disk
from raftlog_chaos.scenarios.group_churn import group_churn
from raftlog_chaos.scenarios.group_ends import group_ends
from raftlog_chaos.scenarios.hanging import hanging_transactions
from raftlog_chaos.scenarios.hung_nodes import hung_nodes
from raftlog_chaos.scenarios.jepsen import jepsen
from raftlog_chaos.scenarios.kip_101 import kip_101
from raftlog_chaos.scenarios.last_replica import last_replica
from raftlog_chaos.scenarios.late_bytes import late_bytes
from raftlog_chaos.scenarios.late_damage import late_damage
from raftlog_chaos.scenarios.log_starts import log_starts
from raftlog_chaos.scenarios.log_trouble import log_trouble
from raftlog_chaos.scenarios.lying_disk import lying_disk
from raftlog_chaos.scenarios.made_up_producers import made_up_producers
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from raftlog_chaos.scenarios.names_out_of_order import names_out_of_order
from raftlog_chaos.scenarios.new_topics import new_topics
from raftlog_chaos.scenarios.odd_headers import odd_headers
from raftlog_chaos.scenarios.offsets_cleaned import offsets_cleaned
from raftlog_chaos.scenarios.out_of_files import out_of_files
from raftlog_chaos.scenarios.pause_kill import pause_kill
from raftlog_chaos.scenarios.pending_markers import pending_markers
from raftlog_chaos.scenarios.quorum import quorum_storm
from raftlog_chaos.scenarios.quorum_calm import quorum_calm
from raftlog_chaos.scenarios.quorum_choreography import (
    quorum_hidden_minority,
    quorum_late_answers,
    quorum_rivals,
)
from raftlog_chaos.scenarios.quorum_controller import controller
from raftlog_chaos.scenarios.reassignment import reassignment
from raftlog_chaos.scenarios.refused import refused
from raftlog_chaos.scenarios.refused_holes import refused_holes
from raftlog_chaos.scenarios.relay import relay
from raftlog_chaos.scenarios.retry import retry
from raftlog_chaos.scenarios.rights import rights
from raftlog_chaos.scenarios.rolled_back import rolled_back
from raftlog_chaos.scenarios.rolled_back_unnoticed import rolled_back_unnoticed
from raftlog_chaos.scenarios.rolled_back_unregistered import rolled_back_unregistered
from raftlog_chaos.scenarios.rolling_upgrade import rolling_upgrade
from raftlog_chaos.scenarios.rotten_files import rotten_files
from raftlog_chaos.scenarios.schemas import schemas
from raftlog_chaos.scenarios.schemas_moved import schemas_moved
from raftlog_chaos.scenarios.schemas_truncated import schemas_truncated
from raftlog_chaos.scenarios.share_groups import share_groups
from raftlog_chaos.scenarios.share_offsets import share_offsets
from raftlog_chaos.scenarios.slow_nodes import slow_nodes
from raftlog_chaos.scenarios.stored_configs import stored_configs
from raftlog_chaos.scenarios.transactions import transactions
from raftlog_chaos.scenarios.transactions_cleaned import transactions_cleaned
from raftlog_chaos.scenarios.voter_identity import voter_identity
from raftlog_chaos.scenarios.voter_rolled_back import voter_rolled_back
from raftlog_chaos.scenarios.voters_change import voters_change
from raftlog_chaos.scenarios.wiped import wiped
from raftlog_chaos.scenarios.zombie import zombie
from raftlog_chaos.simulator.loop import SimLoop

Scenario = Callable[[SimLoop, float], Awaitable[Any]]
"""The returned value has figures named as those of `Report`, where they apply."""

SCENARIOS: Final[dict[str, Scenario]] = {
    "endurance": endure,
    "believed-time": believed_time,
    "blackouts": blackouts,
    "jepsen": jepsen,
    "clean-stop": clean_stop,
    "clock-jumps": clock_jumps,
    "commits": commits,
    "compaction": compaction,
    "consumer-churn": consumer_churn,
    "corruption": corruption,
    "cut-off": cut_off,
    "decommissions": decommissions,
    "disk-errors": disk_errors,
    "double-failover": double_failover,
    "eligible-leaders": eligible_leaders,
    "emptied-segments": emptied_segments,
    "controller": controller,
    "exactly-once": exactly_once,
    "exactly-once-alone": exactly_once_alone,
    "exactly-once-groups": exactly_once_groups,
    "fetch-sessions": fetch_sessions,
    "first-batches": first_batches,
    "follower-reads": follower_reads,
    "full-disk": full_disk,
    "group-churn": group_churn,
    "group-ends": group_ends,
    "group-migration": group_migration,
    "hanging-transactions": hanging_transactions,
    "hung-nodes": hung_nodes,
    "kip-101": kip_101,
    "last-replica": last_replica,
    "late-bytes": late_bytes,
    "late-damage": late_damage,
    "log-starts": log_starts,
    "log-trouble": log_trouble,
    "lying-disk": lying_disk,
    "made-up-producers": made_up_producers,
    "names-of-one-log": names_of_one_log,
    "names-out-of-order": names_out_of_order,
    "new-topics": new_topics,
    "odd-headers": odd_headers,
    "offsets-cleaned": offsets_cleaned,
    "out-of-files": out_of_files,
    "pause-kill": pause_kill,
    "pending-markers": pending_markers,
    "quorum": quorum_storm,
    "quorum-calm": quorum_calm,
    "quorum-hidden-minority": quorum_hidden_minority,
    "quorum-late-answers": quorum_late_answers,
    "quorum-rivals": quorum_rivals,
    "reassignment": reassignment,
    "refused": refused,
    "refused-holes": refused_holes,
    "relay": relay,
    "retry": retry,
    "rights": rights,
    "rolled-back": rolled_back,
    "rolled-back-unnoticed": rolled_back_unnoticed,
    "rolled-back-unregistered": rolled_back_unregistered,
    "rotten-files": rotten_files,
    "schemas": schemas,
    "schemas-moved": schemas_moved,
    "schemas-truncated": schemas_truncated,
    "share-groups": share_groups,
    "share-offsets": share_offsets,
    "slow-nodes": slow_nodes,
    "stored-configs": stored_configs,
    "transactions": transactions,
    "transactions-cleaned": transactions_cleaned,
    "voter-identity": voter_identity,
    "voter-rolled-back": voter_rolled_back,
    "voters-change": voters_change,
    "wiped": wiped,
    "zombie": zombie,
    "rolling-upgrade": rolling_upgrade,
}
"""Keyed by name, as for `raftlog sim --scenario`."""
