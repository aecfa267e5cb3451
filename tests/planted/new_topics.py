"""Bugs about a new topic: a node answers that it is there, and refuses to serve it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.missing_replicas import MissingReplicas
from raftlog.broker.replicas.replicas import Replicas
from raftlog_chaos.scenarios.new_topics import new_topics
from tests.planted.plant import Plant


def answered_before_it_is_served(patch: pytest.MonkeyPatch) -> None:
    """The answer waits for the image alone, as in raftlog 0.3."""
    init = MissingReplicas.__init__

    def never_awaited(missing: Any) -> None:
        init(missing)
        missing.leaderships_made = asyncio.Event()
        missing.leaderships_made.set()
        missing.leaderships_made.clear = lambda: None

    patch.setattr(MissingReplicas, "__init__", never_awaited)


def begun_is_made(patch: pytest.MonkeyPatch) -> None:
    """A replica counts as made as soon as a thread has begun to make it."""
    remove = MissingReplicas.remove

    def remove_and_settle(missing: MissingReplicas, name: TopicPartition) -> None:
        remove(missing, name)
        missing.discard(name)

    patch.setattr(MissingReplicas, "remove", remove_and_settle)


def late_roles_wake_nobody(patch: pytest.MonkeyPatch) -> None:
    """A coordinator with a replica that is made after the image waits for the next image."""
    patch.setattr(Replicas, "_note_roles", lambda replicas, moved: replicas._timeline.log_roles(moved))


HAZARD = "a topic that is answered for and not served"

PLANTS = [
    Plant("answered-before-it-is-served", HAZARD, new_topics, answered_before_it_is_served),
    Plant("begun-is-made", HAZARD, new_topics, begun_is_made),
    Plant(
        "late-roles-wake-nobody",
        "a lost wake",
        new_topics,
        late_roles_wake_nobody,
        test=(
            "tests/broker/replicas/test_missing_replicas.py"
            "::test_every_replica_that_is_made_late_notifies_the_waiters_for_its_role"
        ),
    ),
]
