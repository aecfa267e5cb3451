"""The real thing: sockets, disks and threads, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from raftlog.base.env import Env
from raftlog.quorum.client import ControllerClient
from raftlog.quorum.core import RaftCore
from raftlog.quorum.driver import Driver
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.raft_links import probe
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.quorum.wal import DamagedJournal
from tests.quorum.cluster import SECRET, QuorumCluster, RecordingStateMachine, bound_socket, until

LOOPS: list[Callable[[Coroutine[Any, Any, None]], None]] = [asyncio.run, uvloop.run]
each_loop = pytest.mark.parametrize("run", LOOPS, ids=["asyncio", "uvloop"])


@each_loop
def test_three_voters_commit_restart_and_replace_a_dead_leader(
    run: Callable[..., None], tmp_path: Path
) -> None:
    """Elections, group commit with fdatasync, recovery and fast failover over loopback."""

    async def script() -> None:
        cluster = QuorumCluster(tmp_path, 3)
        await cluster.start()
        batches = [b"%d" % number for number in range(200)]
        await cluster.commit(*batches)
        await cluster.stop()
        await cluster.start()
        await cluster.commit(b"after")
        leader = (await cluster.leader()).node_id
        await cluster.stop(leader)
        await cluster.leader()
        await cluster.commit(b"new reign")
        await cluster.start(leader)
        await until(lambda: cluster.tapes[leader].data == [*batches, b"after", b"new reign"])
        await cluster.stop()

    run(script())


@each_loop
def test_snapshots_are_taken_on_threads_and_installed(run: Callable[..., None], tmp_path: Path) -> None:
    """Encoding and file work beside the loop, while batches go on."""

    async def script() -> None:
        cluster = QuorumCluster(tmp_path, 3, compaction=SnapshotPolicy(entries=50))
        await cluster.start(1, 2)
        for number in range(200):
            await cluster.commit(b"%d" % number)
        await until(lambda: cluster.nodes[1].driver.journal.first_index > 100)
        await cluster.start(3)
        await cluster.commit(b"last")
        assert (
            cluster.tapes[3].data
            == cluster.tapes[1].data
            == [*(b"%d" % each for each in range(200)), b"last"]
        )
        assert cluster.tapes[3].calls[0][0] in ("restore", "leader")
        await cluster.stop()
        names = sorted(path.name for path in (tmp_path / "1").iterdir())
        assert len(names) <= 3 and "quorum.wal" in names
        await cluster.start()
        await cluster.commit(b"again")
        await cluster.stop()

    run(script())


@each_loop
def test_a_quorum_at_rest_wakes_up_for_heartbeats_only(
    run: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timers do not spin before they are due, and a response without changes is no round."""
    wakes, ticks = [], []
    wake, tick = Driver._wake, RaftCore.tick
    monkeypatch.setattr(Driver, "_wake", lambda driver: (wakes.append(driver), wake(driver))[1])
    monkeypatch.setattr(RaftCore, "tick", lambda core: (ticks.append(core), tick(core))[1])

    async def script() -> None:
        cluster = QuorumCluster(tmp_path, 3)
        await cluster.start()
        await cluster.commit(b"first")
        driver = (await cluster.leader()).driver
        wakes.clear(), ticks.clear()
        beats = []
        send = driver.send
        driver.send = lambda peer, message: (beats.append(peer), send(peer, message))[1]
        await until(lambda: len(beats) >= 20)
        await cluster.stop()
        assert wakes.count(driver) <= 12, "ten heartbeats to two followers"
        assert ticks.count(driver.core) <= 2, "nor is a heartbeat"
        assert len(ticks) <= 8, "a follower may have had the last commit to apply"

    run(script())


@each_loop
def test_the_controller_answers_over_its_listener(run: Callable[..., None], tmp_path: Path) -> None:
    """Requests of each voter reach the leader."""

    async def script() -> None:
        cluster = QuorumCluster(tmp_path, 3)
        await cluster.start()
        leader = await cluster.leader()

        async def answer(payload: bytes, peer: int) -> bytes:
            return b"%s from %d" % (payload, peer)

        leader.on_request = answer
        for node, quorum in cluster.nodes.items():
            client = ControllerClient(cluster.envs[node], quorum, local=lambda: answer)
            assert await client.submit(b"hello", 2) == b"hello from %d" % node
            client.close()
        await cluster.stop()

    run(script())


async def test_a_port_in_use_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    """The start fails as a whole."""
    taken = bound_socket()
    taken.listen()
    address = taken.getsockname()
    quorum = Quorum(
        Env(),
        node_id=1,
        voters={1: address},
        directory=f"{tmp_path}/1",
        secret=SECRET,
        cluster_id=lambda: None,
        machine=RecordingStateMachine(),
    )
    with pytest.raises(OSError):
        await quorum.start(address)
    assert not quorum.leading
    taken.close()


async def test_a_damaged_log_refuses_to_start(tmp_path: Path) -> None:
    """With a clear error, before anything is listened to or said."""
    cluster = QuorumCluster(tmp_path, 1)
    await cluster.start()
    await cluster.commit(b"one", b"two")
    await cluster.commit(b"three")
    await cluster.stop()
    wal = tmp_path / "1" / "quorum.wal"
    rotten = bytearray(wal.read_bytes())
    rotten[40] ^= 1
    wal.write_bytes(rotten)
    with pytest.raises(DamagedJournal, match=r"quorum\.wal"):
        await cluster.start()


async def test_a_torn_tail_is_cut_and_the_voter_starts(tmp_path: Path) -> None:
    """kill -9 in the middle of a write."""
    cluster = QuorumCluster(tmp_path, 1)
    await cluster.start()
    await cluster.commit(b"one")
    await cluster.stop()
    wal = tmp_path / "1" / "quorum.wal"
    wal.write_bytes(wal.read_bytes() + b"\0\0\0half a record")
    await cluster.start()
    await cluster.commit(b"two")
    assert cluster.tapes[1].data == [b"one", b"two"]
    await cluster.stop()


async def test_a_probe_distinguishes_a_dead_process_from_a_live_process() -> None:
    """A closed port refuses; an open port is alive, whichever process listens."""
    sock = bound_socket()
    sock.listen()
    assert await probe(sock.getsockname()) == "alive"
    address = sock.getsockname()
    sock.close()
    assert await probe(address) == "refused"
