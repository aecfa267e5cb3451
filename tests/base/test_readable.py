"""raftlog.base.readable: waits for files whatever their descriptors are."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from raftlog.base.readable import readable

MANY = 1_100
"""More descriptors than select(2) takes."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Have the next descriptors be too large for select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MANY
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with ExitStack() as opened:
        for _ in range(MANY):
            opened.enter_context(open(os.devnull))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_files_beyond_1024_are_waited_for() -> None:
    """A test with so many open files could not poll its nodes."""
    (near, far), (silent, other) = socket.socketpair(), socket.socketpair()
    with near, far, silent, other:
        assert near.fileno() > 1024
        assert readable([near, silent], 0) == []
        far.send(b"x")
        assert readable([near, silent], None) == [near]
        assert readable([near.fileno()], 0) == [near.fileno()]


def test_the_end_of_a_file_counts_as_readable() -> None:
    """A pipe signals the end of its process in this way."""
    near, far = socket.socketpair()
    with near:
        far.close()
        assert readable([near], 0) == [near]
