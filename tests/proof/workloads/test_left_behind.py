"""Calls into a client library that never come back: the run goes on, says so, and its process ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from raftlog.proof.workloads import stock
from raftlog.proof.workloads.port import Indefinite
from raftlog.proof.workloads.stock import StockPorts

ENDS_WITHIN_S = 30
STUCK = """
import asyncio, threading
from raftlog.proof.workloads import stock
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
    """The operation's fate is unknown, the client is spent, closing it waits for nothing."""
    monkeypatch.setattr(stock, "CALL_S", 0.01)
    ports, released = StockPorts("127.0.0.1:1"), threading.Event()
    port = ports(3, "reader")

    async def play() -> None:
        with pytest.raises(Indefinite, match="commit did not return"):
            await port._call(port._reader, released.wait, "commit")
        assert port.spent
        await port.close()

    asyncio.run(play())
    released.set()
    assert ports.left_behind == ["client 3: commit did not return within 0.01 s"]


def test_a_process_ends_although_a_call_never_returns() -> None:
    """Its thread is nobody's to wait for."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=True
    )
    assert "commit did not return" in done.stdout
