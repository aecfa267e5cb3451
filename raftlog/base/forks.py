"""Files and sockets that a forked child must not keep.

A child of fork(2) has copies of all descriptors. While it lives, a socket that its parent closed still accepts clients.
A lock (flock(2)) on a file that its parent closed is held. Here a child replaces such copies by /dev/null. Their
numbers stay taken, so an object that closes its number in the child closes no other file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from selectors import BaseSelector
from typing import Protocol
from weakref import WeakSet


class HasDescriptor(Protocol):
    """A file, a socket or a selector."""

    def fileno(self) -> int: ...


_kept: WeakSet[HasDescriptor] = WeakSet()


def keep_from_children(*files: HasDescriptor) -> None:
    """Close copies of these in processes that are forked from now on; of a selector, copies of its files too."""
    _kept.update(files)


def _drop_copies() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for number in _numbers():
        os.dup2(null, number, inheritable=False)
    os.close(null)


def _numbers() -> Iterator[int]:
    """Yield the open descriptors."""
    for each in tuple(_kept):
        numbers = []
        with suppress(ValueError):  # it is closed
            numbers.append(each.fileno())
        if isinstance(each, BaseSelector):
            numbers += [key.fd for key in (each.get_map() or {}).values()]
        yield from (number for number in numbers if number >= 0)


os.register_at_fork(after_in_child=_drop_copies)
