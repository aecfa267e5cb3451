"""Waiting for files without an event loop: poll(2), since select(2) fails for descriptors from 1,024 on."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasDescriptor(Protocol):
    """An open file or socket."""

    def fileno(self) -> int: ...


T = TypeVar("T", bound=int | HasDescriptor)


def readable(files: Sequence[T], within_s: float | None) -> list[T]:
    """Wait for the first readable or ended file, and return all such files; None waits for ever."""
    poll, by_descriptor = select.poll(), {}
    for each in files:
        by_descriptor[each if isinstance(each, int) else each.fileno()] = each
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[found] for found, _ in poll.poll(None if within_s is None else within_s * 1000)]
