"""Selects the batches that consumers see: no markers, and with read_committed no aborted transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from raftlog.records.header import BatchHeader


class HasHeader(Protocol):
    """A batch, in whatever form."""

    @property
    def header(self) -> BatchHeader: ...


B = TypeVar("B", bound=HasHeader)


def visible_batches(batches: Iterable[B], aborted: Iterable[tuple[int, int]]) -> list[B]:
    """Return the batches with records for readers. `aborted`: (producer id, first offset) of aborted transactions."""
    found = []
    to_begin = sorted(aborted, key=lambda each: each[1], reverse=True)
    producers: set[int] = set()
    for batch in batches:
        header = batch.header
        while to_begin and to_begin[-1][1] <= header.last_offset:
            producers.add(to_begin.pop()[0])
        if header.is_control:
            producers.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in producers):
            found.append(batch)
    return found
