"""A cluster starts on configs that an older release stored and this release refuses, in its journal and in snapshots.

It serves, shows them, changes all others, and deletes them. Controllers of an older release accepted any value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from raftlog.base.errors import InvalidConfig
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.config_admin import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigAdmin,
    any_value_accepted,
    refused_texts,
    sound_texts,
)
from raftlog_chaos.workloads.raw_client import Client, create_topic

OLD_TOPIC: Final = "old"
RESOURCES: Final = ((TOPIC, OLD_TOPIC), (BROKER, ""), (GROUP, "g"), (CLIENT_METRICS, "m"))
CHANGED: Final = 4
"""Configs of a resource that are changed in a round."""

T = TypeVar("T")
Stored = dict[str, str]


class StoredConfigs(Choreography):
    """The stage, and what the older release left behind by resource."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.cluster.compaction = SnapshotPolicy(entries=self.chance.choice((10, 1000)))
        self.stored: dict[tuple[int, str], Stored] = {each: {} for each in RESOURCES}
        self.changes = 0
        self._client = Client("configs", self.cluster.bootstrap)
        self._admin = ConfigAdmin(self._client)

    async def store(self) -> None:
        """Set some or all of the values that this release refuses, as an older release did."""
        await self._on_wire(create_topic(self._client, OLD_TOPIC, partitions=1))
        with any_value_accepted():
            for kind, name in RESOURCES:
                for config, texts in refused_texts(kind).items():
                    if self.chance.random() < 0.7:
                        self.stored[kind, name][config] = self.chance.choice(texts)
                code = await self._on_wire(self._admin.set(kind, name, self.stored[kind, name]))
                assert code == 0, f"an older release takes {self.stored[kind, name]}: error {code}"

    async def upgrade(self) -> None:
        """Stop all nodes, gently or not; this release starts on their data."""
        self.cluster.crash(*self.cluster.nodes, power_loss=self.power())
        await asyncio.sleep(self.a_while(0.0, 0.2))
        self.cluster.start()
        await self.whole()
        await self.served(5)

    async def look(self) -> None:
        """Check that any node shows all stored values."""
        for kind, name in RESOURCES:
            shown = await self._on_wire(self._admin.describe(kind, name))
            for config, text in self.stored[kind, name].items():
                assert shown.get(config) == text, f"{config} is stored as {text!r}, not {shown.get(config)!r}"

    async def change(self) -> None:
        """Set sound values beside the stored values and delete some; no value that is refused today is accepted
        anew.
        """
        for (kind, name), stored in self.stored.items():
            odd, sound = refused_texts(kind), sound_texts(kind)
            for config in self.chance.sample(sorted(sound), min(CHANGED, len(sound))):
                await self._set(kind, name, config, sound[config])
                if config in odd:
                    text = self.chance.choice(odd[config])
                    code = await self._on_wire(self._admin.set(kind, name, {config: text}))
                    assert code == InvalidConfig.code, f"{config}={text!r} is taken: error {code}"
                await self._set(kind, name, config, None)
                stored.pop(config, None)
            for config in self.chance.sample(sorted(stored), min(CHANGED, len(stored))):
                await self._set(kind, name, config, None)
                del stored[config]

    async def _set(self, kind: int, name: str, config: str, text: str | None) -> None:
        code = await self._on_wire(self._admin.set(kind, name, {config: text}))
        assert code == 0, f"{config} cannot become {text!r} beside {self.stored[kind, name]}: error {code}"
        self.changes += 1

    async def _on_wire(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(SERVED_S):
                return await self.loop.host("configs").start(work)
        except TimeoutError:
            raise AssertionError("a request about configs is never answered") from None


async def stored_configs(loop: SimLoop, seconds: float = 2.0) -> Report:
    """Store, upgrade, and change configs for some virtual seconds. Raises AssertionError."""
    scene = StoredConfigs(loop)
    await scene.begin()
    await scene.store()
    end = loop.time() + seconds
    while True:
        await scene.upgrade()
        await scene.look()
        await scene.change()
        if loop.time() >= end:
            break
    report = await scene.end()
    return replace(report, faults={**report.faults, "config changed": scene.changes})
