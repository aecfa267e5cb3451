"""Calls into a client library that never come back: the run goes on, says so, and its process ends."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from raftlog_chaos.workloads import stock
from raftlog_chaos.workloads.port import Indefinite
from raftlog_chaos.workloads.stock import StockPorts
from tests.kit.waits import PATIENCE_S, run

STUCK = """
import asyncio, threading
from raftlog_chaos.workloads import stock
stock.CALL_S = 0.01
ports = stock.StockPorts("127.0.0.1:1")
port = ports(3, "reader")
async def main():
    try:
        await port._call(port._reader, threading.Event().wait, "commit")
    except stock.Indefinite as error:
        print(error)
    await port.close()
asyncio.run(main())
"""


def test_a_call_that_never_returns_is_given_up_and_the_client_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operation's fate is unknown, the client is discarded, and closing it does not wait."""
    monkeypatch.setattr(stock, "CALL_S", 0.01)
    ports, released = StockPorts("127.0.0.1:1"), threading.Event()
    port = ports(3, "reader")

    async def play() -> None:
        with pytest.raises(Indefinite, match=r"client 3: commit .* 0\.01 s"):
            await port._call(port._reader, released.wait, "commit")
        assert port.spent
        monkeypatch.undo()
        await port.close()

    asyncio.run(play())
    released.set()
    assert ports.left_behind == ["client 3: commit did not return within 0.01 s"]


class StandsStill:
    """A producer with a poll that returns on release, and that never reports."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def produce(self, *_: object, **__: object) -> None:
        return None

    def poll(self, _: float) -> None:
        self.released.wait()

    def purge(self) -> None:
        return None

    def flush(self, _: float) -> None:
        return None


def test_what_a_stuck_producer_holds_is_of_unknown_fate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender does not wait for ever, and the client is used no more."""
    monkeypatch.setattr(stock, "CALL_S", 0.3)
    ports, producer = StockPorts("127.0.0.1:1"), StandsStill()
    port = ports(4, "writer")
    monkeypatch.setattr(port, "_open_producer", lambda: producer)
    monkeypatch.setattr(port, "_producer", producer)

    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(Indefinite, match=r"client 4: sending .* 0\.3 s"):
                await port.send("t-0", 1)
            assert port.spent
            await port.close()

    asyncio.run(play())
    producer.released.set()
    assert ports.left_behind == ["client 4: sending did not return within 0.3 s"]


def test_a_process_ends_although_a_call_never_returns() -> None:
    """Its thread is not waited for."""
    done = run([sys.executable, "-c", STUCK], text=True)
    assert done.returncode == 0, done.stderr
    assert "commit did not return" in done.stdout
