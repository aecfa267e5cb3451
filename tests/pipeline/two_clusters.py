"""The promises of `mirror` between two clusters, for any connector: no lost or double record in a crash."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from raftlog.pipeline.jobs.offset_map import Run, translate
from tests.pipeline.processes import crash, finished, given, go_on, stand_still, started, wait_for
from tests.pipeline.topics import Row, Topics

SOURCE_HEADER = "raftlog.mirror.source"
"""The header with the origin of a copy, for its readers: not to be changed with the code."""
PARTITIONS = 2
EACH = 2_000
BATCH = 1_000
SHIFTS = (3, 1)
"""The records that each partition of the target holds before: offsets are not the same on both sides."""


def check_mirror_across_a_crash(
    source: Topics, target: Topics, topic: str, folder: Path, *, connector: str
) -> None:
    """Kill a mirror amid its second, third or fourth batch, start it again, and compare both clusters."""
    sent = _fill(source, target, topic)
    options = given(
        source,
        topic,
        folder,
        to=target.servers,
        to_client=["batch.num.messages=10"],  # so that a batch takes long enough to be hit
        map_topic=f"{topic}-map",
        max_records=BATCH,
        master="local[2]",
        connector=connector,
    )
    process = started("mirror", options)
    wait_for(lambda: _stopped_amid_a_batch(process, target, topic), process)
    crash(process)
    seen = _copied(target, topic)
    summary = json.loads(finished(started("mirror", options, "--json")))
    # what was under way when it was killed a broker may take still
    before = PARTITIONS * EACH - summary["records"]
    assert before % BATCH and BATCH < seen <= before < PARTITIONS * EACH, "not killed amid a batch"
    assert summary["skipped"] >= before % BATCH
    copies = target.read(topic, PARTITIONS)
    _check_copies(copies, topic, sent, cluster_id=source.cluster_id)
    _check_map(target, topic, copies)


def _stopped_amid_a_batch(process: subprocess.Popen[str], target: Topics, topic: str) -> bool:
    """Whether a mirror is amid a batch, not its first. Then it stands still, so that it is true however slow we are."""
    if not _is_amid_a_batch(target, topic):
        return False
    stand_still(process)
    if _is_amid_a_batch(target, topic):
        return True
    go_on(process)
    return False


def _is_amid_a_batch(target: Topics, topic: str) -> bool:
    copied = _copied(target, topic)
    return copied > BATCH and BATCH // 5 < copied % BATCH < BATCH - BATCH // 5


def _fill(source: Topics, target: Topics, topic: str) -> list[list[bytes]]:
    """Fill the source, and give the target a past of its own; returns the values by partition."""
    sent = [[f"{partition}-{n}".encode() for n in range(EACH)] for partition in range(PARTITIONS)]
    for cluster in (source, target):
        cluster.make(topic, PARTITIONS)
    for partition, shift in enumerate(SHIFTS):
        target.fill(topic, [b"from before"] * shift, partition=partition)
        source.fill(topic, sent[partition], partition=partition, headers=[("h", b"x")])
    return sent


def _copied(target: Topics, topic: str) -> int:
    return target.held(topic, PARTITIONS) - sum(SHIFTS)


def _check_copies(copies: list[Row], topic: str, sent: list[list[bytes]], *, cluster_id: str) -> None:
    """Each record once, in its partition and in its order, and with its origin."""
    found = [
        (row.partition, row.offset, row.value, row.headers) for row in copies if row.value != b"from before"
    ]
    assert found == [
        (
            partition,
            number + SHIFTS[partition],
            value,
            [("h", b"x"), (SOURCE_HEADER, f"{cluster_id}/{topic}/{partition}/{number}".encode())],
        )
        for partition, values in enumerate(sent)
        for number, value in enumerate(values)
    ]


def _check_map(target: Topics, topic: str, copies: list[Row]) -> None:
    """A reader of so many records of the source goes on behind the copy of the last."""
    known = [Run(**json.loads(row.value or b"")) for row in target.read(f"{topic}-map")]
    behind = {(row.partition, row.value): row.offset + 1 for row in copies}
    for partition in range(PARTITIONS):
        for number in range(EACH):
            wanted = behind[partition, f"{partition}-{number}".encode()]
            assert translate(known, topic, partition, offset=number + 1) == wanted
