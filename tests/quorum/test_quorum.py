"""The quorum as a whole, over real sockets."""

from __future__ import annotations

import time
from pathlib import Path

from tests.quorum.cluster import Cluster


async def test_three_voters_commit_and_survive_a_restart(tmp_path: Path) -> None:
    """What was committed is applied on every voter, in order, again after all restarted (Raft §5.4)."""
    cluster = Cluster(tmp_path, 3)
    await cluster.start()
    batches = [b"%d" % number for number in range(100)]
    started = time.monotonic()
    await cluster.commit(*batches)
    print("committed in", time.monotonic() - started)
    assert all(tape.data == batches for tape in cluster.tapes.values())
    await cluster.stop()
    await cluster.start()
    await cluster.commit(b"after")
    assert all(tape.data == [*batches, b"after"] for tape in cluster.tapes.values())
    await cluster.stop()
