"""What the simulator tells anew with every seed: a cluster, its clients, its faults, and what must hold afterwards.

A story is `async def story(loop, seconds)`; it raises AssertionError when a promise was broken. A new one is
a file here and a line in `STORIES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raftlog.proof.simulator.loop import SimLoop
from raftlog.proof.stories.blackouts import blackouts
from raftlog.proof.stories.clean_stop import clean_stop
from raftlog.proof.stories.clock_jumps import clock_jumps
from raftlog.proof.stories.commits import commits
from raftlog.proof.stories.compaction import compaction
from raftlog.proof.stories.consumer_churn import consumer_churn, group_migration
from raftlog.proof.stories.corruption import corruption
from raftlog.proof.stories.disk_errors import disk_errors
from raftlog.proof.stories.double_failover import double_failover
from raftlog.proof.stories.endurance import endure
from raftlog.proof.stories.exactly_once import exactly_once, exactly_once_groups
from raftlog.proof.stories.group_churn import group_churn
from raftlog.proof.stories.group_ends import group_ends
from raftlog.proof.stories.hanging import hanging_transactions
from raftlog.proof.stories.jepsen import jepsen
from raftlog.proof.stories.kip_101 import kip_101
from raftlog.proof.stories.last_replica import last_replica
from raftlog.proof.stories.late_bytes import late_bytes
from raftlog.proof.stories.lying_disk import lying_disk
from raftlog.proof.stories.made_up_producers import made_up_producers
from raftlog.proof.stories.offsets_cleaned import offsets_cleaned
from raftlog.proof.stories.pause_kill import pause_kill
from raftlog.proof.stories.quorum import quorum_storm
from raftlog.proof.stories.quorum_calm import quorum_calm
from raftlog.proof.stories.quorum_choreography import (
    quorum_hidden_minority,
    quorum_late_answers,
    quorum_rivals,
)
from raftlog.proof.stories.quorum_controller import controller
from raftlog.proof.stories.reassignment import reassignment
from raftlog.proof.stories.refused import refused
from raftlog.proof.stories.refused_holes import refused_holes
from raftlog.proof.stories.relay import relay
from raftlog.proof.stories.retry import retry
from raftlog.proof.stories.slow_nodes import slow_nodes
from raftlog.proof.stories.transactions import transactions
from raftlog.proof.stories.transactions_cleaned import transactions_cleaned
from raftlog.proof.stories.wiped import wiped
from raftlog.proof.stories.zombie import zombie

Story = Callable[[SimLoop, float], Awaitable[Any]]
"""What it returns has figures named as those of `Report`, as far as they mean something to it."""

STORIES: Final[dict[str, Story]] = {
    "endurance": endure,
    "blackouts": blackouts,
    "jepsen": jepsen,
    "clean-stop": clean_stop,
    "clock-jumps": clock_jumps,
    "commits": commits,
    "compaction": compaction,
    "consumer-churn": consumer_churn,
    "corruption": corruption,
    "disk-errors": disk_errors,
    "double-failover": double_failover,
    "controller": controller,
    "exactly-once": exactly_once,
    "exactly-once-groups": exactly_once_groups,
    "group-churn": group_churn,
    "group-ends": group_ends,
    "group-migration": group_migration,
    "hanging-transactions": hanging_transactions,
    "kip-101": kip_101,
    "last-replica": last_replica,
    "late-bytes": late_bytes,
    "lying-disk": lying_disk,
    "made-up-producers": made_up_producers,
    "offsets-cleaned": offsets_cleaned,
    "pause-kill": pause_kill,
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
    "slow-nodes": slow_nodes,
    "transactions": transactions,
    "transactions-cleaned": transactions_cleaned,
    "wiped": wiped,
    "zombie": zombie,
}
"""By the name that `raftlog sim --story` takes."""
