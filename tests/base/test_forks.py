"""Claims about what a forked child keeps of its parent's files and sockets."""

from __future__ import annotations

import fcntl
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.base.forks import keep_from_children


def fork(work: Callable[[], object]) -> tuple[int, int]:
    """Start a child that lives until the descriptor that comes with its pid is closed, and wait for its `work`."""
    leash, held = os.pipe()
    done, doing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(held)
        try:
            work()
            os.write(doing, b"1")
            os.read(leash, 1)
        finally:
            os._exit(0)
    for each in (leash, doing):
        os.close(each)
    worked = os.read(done, 1)
    os.close(done)
    assert worked, "the child failed"
    return pid, held


def end(child: tuple[int, int]) -> None:
    pid, held = child
    os.close(held)
    os.waitpid(pid, 0)


def test_a_lock_that_the_parent_closes_is_free_while_its_child_lives(tmp_path: Path) -> None:
    """A lock of flock(2) belongs to all copies of a descriptor."""
    with open(tmp_path / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        keep_from_children(file)
        child = fork(lambda: None)
    with open(tmp_path / "lock", "wb") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    end(child)


def test_a_child_that_unlocks_its_copy_does_not_unlock_the_parents(tmp_path: Path) -> None:
    """LOCK_UN through any copy would end the lock of all."""
    with open(tmp_path / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        keep_from_children(file)
        end(fork(lambda: (fcntl.flock(file, fcntl.LOCK_UN), file.close())))
        with open(tmp_path / "lock", "wb") as again, pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_sockets_of_a_selector_end_with_the_parents_while_its_child_lives() -> None:
    """The port refuses, and the other end of a connection hears of its end."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    client = socket.create_connection(address, timeout=60)
    accepted, _ = listening.accept()
    with selectors.DefaultSelector() as selector:
        for each in (listening, accepted):
            selector.register(each, selectors.EVENT_READ)
        keep_from_children(selector)
        child = fork(lambda: None)
    for each in (listening, accepted):
        each.close()
    assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=60)
    client.close()
    end(child)


def test_the_number_of_a_copy_stays_taken_in_the_child(tmp_path: Path) -> None:
    """Else the child's object would close, by its number, a file that the child opened since."""
    with open(tmp_path / "held", "wb") as file:
        keep_from_children(file)
        number = file.fileno()

        def work() -> None:
            with open(tmp_path / "new", "wb") as new:
                assert new.fileno() != number
                file.close()
                new.write(b"x")

        end(fork(work))
    assert (tmp_path / "new").read_bytes() == b"x"


def test_what_is_closed_is_no_matter_to_a_fork(tmp_path: Path) -> None:
    """A closed file has no number, a closed socket -1, and a closed selector no map."""
    with (
        open(tmp_path / "file", "wb") as file,
        socket.socket() as plain,
        selectors.DefaultSelector() as chosen,
    ):
        keep_from_children(file, plain, chosen)
    end(fork(lambda: None))
