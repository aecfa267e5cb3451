"""Syncs by the kernel: ends reach the loop, errors their callers, and what is refused is said at once."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from raftlog.base import kernel_syncs
from raftlog.base.disk import RealDisk
from raftlog.base.kernel_syncs import MAX_SYNCS, KernelSyncs
from tests.kit.waits import PATIENCE_S


async def end_of(submit: Any) -> OSError | None:
    """Submit a sync and wait for its end."""
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    assert submit(ended.set_result)
    assert not ended.done(), "never within the call"
    async with asyncio.timeout(PATIENCE_S):
        return await ended


@pytest.fixture
def needs_aio() -> None:
    """A sandbox may refuse io_setup; what raftlog does then is tested apart."""
    context = None
    if kernel_syncs.linux_aio is not None:
        try:
            context = kernel_syncs.linux_aio.Context(max_requests=1)
        except (OSError, SystemError):
            pass
    if context is None:
        pytest.skip("this system has no asynchronous syncs")


@pytest.mark.usefixtures("needs_aio")
async def test_a_sync_ends_on_the_loop_though_its_file_was_closed(tmp_path: Path) -> None:
    """io_submit(2): the kernel holds the file until the operation has ended."""
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.pwritev([b"contents"], 0)
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    assert file.submit_sync(ended.set_result)
    file.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await ended is None


@pytest.mark.usefixtures("needs_aio")
async def test_many_syncs_end_and_syncs_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    """Each that was taken has one end; a caller syncs the others itself."""
    syncs, path = KernelSyncs(), str(tmp_path / "file")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    ends: list[OSError | None] = []
    all_ended = asyncio.Event()
    taken = 0

    def end(error: OSError | None) -> None:
        ends.append(error)
        if len(ends) == taken:
            all_ended.set()

    for _ in range(20 * MAX_SYNCS):
        taken += syncs.submit(fd, path, end)
    assert taken >= MAX_SYNCS
    async with asyncio.timeout(PATIENCE_S):
        await all_ended.wait()
    assert ends == [None] * taken
    os.close(fd)


@pytest.mark.usefixtures("needs_aio")
async def test_a_file_that_cannot_be_synced_is_refused() -> None:
    """fdatasync(2): EINVAL for a pipe, EBADF for what is not open; neither begins anything."""
    reader, writer = os.pipe()
    assert not KernelSyncs().submit(writer, "a pipe", lambda error: None)
    os.close(reader)
    os.close(writer)
    assert not KernelSyncs().submit(writer, "nothing", lambda error: None)


class FakeContext:
    """A kernel with syncs that end as the test says."""

    def __init__(self, max_requests: int = 1) -> None:
        self.fileno, self._wake = os.pipe()
        os.set_blocking(self.fileno, False)
        self.results: list[int] = []
        self._callbacks: list[Any] = []
        self.interruptions = 0

    def submit(self, operation: Any) -> int:
        self._callbacks.append(operation.callback)
        os.write(self._wake, b"1")
        return 1

    def poll(self) -> int:
        return len(os.read(self.fileno, 1))

    def process_events(self, most: int) -> int:
        if self.interruptions:
            self.interruptions -= 1
            raise SystemError(errno.EINTR, "interrupted")
        for callback in self._callbacks:
            callback(self.results.pop(0))
        self._callbacks.clear()
        return 1


class FakeOperation:
    callback: Any = None

    @classmethod
    def fdsync(cls, fd: int) -> FakeOperation:
        return cls()

    def set_callback(self, callback: Any) -> None:
        self.callback = callback


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> FakeContext:
    class FakeLinuxAio:
        Operation = FakeOperation
        made = FakeContext()

        @classmethod
        def Context(cls, max_requests: int) -> FakeContext:
            return cls.made

    monkeypatch.setattr(kernel_syncs, "linux_aio", FakeLinuxAio)
    return FakeLinuxAio.made


async def test_the_disks_error_reaches_the_callback(context: FakeContext) -> None:
    """`caio` passes the result of io_event on as an unsigned number."""
    context.results = [2**64 - errno.EIO]
    error = await end_of(lambda done: KernelSyncs().submit(3, "/data/log", done))
    assert error is not None
    assert (error.errno, error.filename) == (errno.EIO, "/data/log")


async def test_an_interrupted_look_is_repeated(context: FakeContext) -> None:
    """A signal may come between; the ends are still to be fetched."""
    context.results, context.interruptions = [0], 1
    assert await end_of(lambda done: KernelSyncs().submit(3, "/data/log", done)) is None


async def test_a_callback_that_fails_holds_up_no_other(context: FakeContext) -> None:
    """Its failure goes to the loop's exception handler, after the others were called."""
    loop, failures = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    syncs = KernelSyncs()

    def fail(error: OSError | None) -> None:
        raise AssertionError("our own fault")

    context.results = [0, 0]
    assert syncs.submit(3, "/data/a", fail)
    assert await end_of(lambda done: syncs.submit(3, "/data/b", done)) is None
    await asyncio.sleep(0)
    assert [str(each) for each in failures] == ["our own fault"]


@pytest.mark.parametrize("missing", [None, "io_setup"])
async def test_without_asynchronous_syncs_all_are_refused(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, tmp_path: Path
) -> None:
    """Other systems have none, and sandboxes refuse io_setup."""

    class Refused:
        @staticmethod
        def Context(max_requests: int) -> None:
            raise SystemError(errno.ENOSYS, missing)

    monkeypatch.setattr(kernel_syncs, "linux_aio", Refused if missing else None)
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    assert not file.submit_sync(lambda error: None)
    file.close()
