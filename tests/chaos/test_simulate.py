"""A custom workload in the simulated world: it runs as the docstring says, and its findings are reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog_chaos import simulate as module
from raftlog_chaos.simulate import AWAY, PromiseBroken, WorkloadContext, simulate


@pytest.mark.taste
@pytest.mark.nightly
def test_the_example_in_the_docstring_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 25 lines, and true."""
    assert module.__doc__ is not None
    lines = [line[4:] for line in module.__doc__.splitlines() if line.startswith("    ")]
    assert 0 < len(lines) <= 25
    names: dict[str, Any] = {"__name__": "example"}
    exec("\n".join(lines), names)
    assert names["run"].result > 100
    assert "acknowledged" in capsys.readouterr().out
    assert names["run"].faults["power-cut"] > 0 and names["run"].faults["vanish"] == 0


async def write_some(context: WorkloadContext) -> list[tuple[int, bytes]]:
    await context.create_topic("t", partitions=2)
    client, written = context.client(), 0
    while written < 5:
        try:
            await client.produce("t", 1, b"%d" % written)
            written += 1
        except AWAY:
            await asyncio.sleep(0.05)
    await context.recovered()
    return await client.read("t", 1)


def test_the_same_seed_is_the_same_run() -> None:
    """Another seed is another run; fair weather has no faults."""
    first, again, other = (simulate(write_some, seed=seed, seconds=0.5, faults=()) for seed in (1, 1, 2))
    assert first == again
    assert first.digest != other.digest
    assert [value for _, value in first.result] == [b"0", b"1", b"2", b"3", b"4"]
    assert set(first.faults.values()) == {0}


def test_one_node_will_do() -> None:
    """Replication factor and min.insync.replicas follow the number of nodes."""
    assert len(simulate(write_some, nodes=1, seconds=0.5, faults=()).result) == 5


async def expect_too_much(context: WorkloadContext) -> None:
    await context.recovered()
    raise AssertionError("nobody promised that")


def test_what_a_workload_asserts_is_reported_with_the_seed() -> None:
    """The seed is what it takes to see it again."""
    with pytest.raises(PromiseBroken, match="seed 9: nobody promised that"):
        simulate(expect_too_much, seed=9, seconds=0.1, faults=())


async def never_end(context: WorkloadContext) -> None:
    await asyncio.Event().wait()


def test_a_workload_that_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time is bounded too."""
    monkeypatch.setattr(module, "FINISH_S", 1.0)
    with pytest.raises(PromiseBroken, match=r"1\.0 virtual seconds"):
        simulate(never_end, seconds=0.1, faults=())


async def misread(context: WorkloadContext) -> None:
    await context.recovered()
    note, process = context.recorder.note, context.recorder.new_process()
    for value, offset in ((1, 0), (2, 0)):
        note(process, "invoke", "send", [["send", "t-0", value]])
        note(process, "ok", "send", [["send", "t-0", [offset, value]]])


def test_what_a_workload_records_is_judged() -> None:
    """Two records at one offset: the history is held to the promises though no assertion failed."""
    with pytest.raises(PromiseBroken, match="inconsistent-offsets"):
        simulate(misread, seconds=0.1, faults=())
