"""Readers of a compacted topic walk through segments that compaction emptied, while it goes on.

Two promises of fetches are judged. Clients take an answer without records for the end of the log, so none comes before
records that were there already. And fetch.min.bytes waits for what is yet to be written, never at the end of a segment.
The third promise is the cleaner's: it does not wait for the recurring checkpoint, which is a minute away here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

from raftlog.records.batch import iter_headers
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.compaction import (
    CONFIGS,
    TABLE,
    cleanings,
    write_between_crashes,
    write_to_table,
)
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.keyed import KeyedWriter
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import AWAY, FETCH, Client, create_topic, shapes

SETTINGS: Final = {"log.cleaner.backoff.ms": "150", "log.flush.offset.checkpoint.interval.ms": "60000"}
CLEANED_S: Final = 20.0
"""Much less than until the next checkpoint. Replicas come into sync before, and transactions end."""
MAX_WAIT_MS: Final = 1_000
FEW_MIN_BYTES: Final = 150


class Walker:
    """Reads from the first offset to the high watermark again and again. Its client's time is virtual."""

    def __init__(self, client: Client, history: Observations, chance: Random) -> None:
        self._client, self._history, self._chance = client, history, chance
        self.offset = 0
        self._empty_until: int | None = None
        """The high watermark that an answer without records came with; None after other answers."""
        self.stopping = False
        self.walks = 0

    async def run(self) -> None:
        while not self.stopping:
            try:
                if await self._step():
                    continue
            except AWAY:
                pass
            await asyncio.sleep(0.05)
            with suppress(*AWAY):
                await self._client.refresh(TABLE)

    async def _step(self) -> bool:
        if (TABLE, 0) not in self._client.leaders:
            return False
        now = asyncio.get_running_loop().time
        began_at = now()
        min_bytes = self._chance.choice((1, FEW_MIN_BYTES))
        response = await self._client.ask_leader(TABLE, 0, FETCH, self._request(min_bytes))
        result = response.responses[0].partitions[0]
        if int(result.error_code):
            self._empty_until = None
            return False
        waited_ms = (now() - began_at) * 1000
        self._judge(bytes(result.records or b""), result.high_watermark, waited_ms=waited_ms)
        if self.offset >= result.high_watermark:
            self.offset, self._empty_until = 0, None
            self.walks += 1
            await asyncio.sleep(self._chance.uniform(0.01, 0.1))
        return True

    def _request(self, min_bytes: int) -> Any:
        make = shapes(FETCH)
        partition = make.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self.offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._chance.choice((300, 1 << 20)),
        )
        return make.FetchRequest(
            replica_id=-1,
            max_wait=MAX_WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=(make.FetchTopic(topic=TABLE, partitions=(partition,)),),
        )

    def _judge(self, records: bytes, high_watermark: int, *, waited_ms: float) -> None:
        headers = [header for _, header in iter_headers(memoryview(records))]
        if not headers:
            return
        filled = [header for header in headers if header.record_count]
        if self._empty_until is not None and filled and filled[0].base_offset < self._empty_until:
            self._history.blame(
                f"an answer before offset {headers[0].base_offset} had no record, though offset "
                f"{filled[0].base_offset} was readable below {self._empty_until}"
            )
        self._empty_until = None if filled else high_watermark
        begun, self.offset = self.offset, headers[-1].end_offset
        if waited_ms >= MAX_WAIT_MS and self.offset < high_watermark:
            self._history.blame(
                f"a fetch at {begun} waited for {waited_ms:.0f} ms and brought [{begun}, {self.offset}), though the "
                f"high watermark was {high_watermark}"
            )


async def emptied_segments(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Overwrite few keys in small segments for some virtual seconds, with crashes. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    configs = {**CONFIGS, "segment.bytes": scene.chance.choice(("300", "700")), "delete.retention.ms": "50"}
    client = Client("emptied", scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(client, TABLE, partitions=1, configs=configs))
    walkers = [
        Walker(Client(f"walker{each}", scene.cluster.bootstrap), scene.history, loop.stream(f"walker{each}"))
        for each in range(2)
    ]
    walking = [loop.host(f"walker{at}").start(each.run()) for at, each in enumerate(walkers)]
    writer = KeyedWriter(loop.stream("keyed"))
    await write_between_crashes(scene, writer, seconds, crashes=0.005)
    await _clean_soon(scene, writer)
    for each in walkers:
        await _walk_once_more(scene, each)
        each.stopping = True
    await asyncio.gather(*walking)
    report = await scene.end()
    seen = {"cleaning": cleanings(scene), "walk": sum(each.walks for each in walkers)}
    return replace(report, faults={**report.faults, **seen})


async def _walk_once_more(scene: Choreography, walker: Walker) -> None:
    """Wait until a reader has come to the end, for as long as it gets on: small fetches from slow disks take long."""
    walks = walker.walks
    while walker.walks == walks:
        offset = walker.offset
        await scene.cluster.until(
            lambda offset=offset: walker.walks > walks or walker.offset != offset,  # type: ignore[misc]
            SERVED_S,
            f"a reader gets on from offset {offset}",
        )


async def _clean_soon(scene: Choreography, writer: KeyedWriter) -> None:
    """Write on until every replica has cleaned what is committed now, long before the next checkpoint."""
    replicas = [scene.cluster.replica(node_id, TABLE, 0) for node_id in scene.cluster.nodes]
    due = max(each.high_watermark for each in replicas if each is not None)

    def all_cleaned() -> bool:
        write_to_table(scene, writer)
        found = [scene.cluster.replica(node_id, TABLE, 0) for node_id in scene.cluster.nodes]
        return all(each is not None and each.log.cleaned_until >= due for each in found)

    await scene.cluster.until(all_cleaned, CLEANED_S, "every replica cleaned before the next checkpoint")
