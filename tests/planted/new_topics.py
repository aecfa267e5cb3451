"""Bugs about a new topic: a node answers that it is there, and refuses to serve it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.missing_replicas import MissingReplicas
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
    take = MissingReplicas.take

    def take_and_settle(missing: MissingReplicas, name: TopicPartition) -> None:
        take(missing, name)
        missing.settle(name)

    patch.setattr(MissingReplicas, "take", take_and_settle)


HAZARD = "a topic that is answered for and not served"

PLANTS = [
    Plant("answered-before-it-is-served", HAZARD, new_topics, answered_before_it_is_served),
    Plant("begun-is-made", HAZARD, new_topics, begun_is_made),
]
