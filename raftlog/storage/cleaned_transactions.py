"""Finds how the transactions of a log ended, for a reader that walks its batches in order (KIP-98)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from raftlog.records.header import BatchHeader
from raftlog.storage.producers import AbortedTransaction

_FIRST_OFFSET: Final = attrgetter("first_offset")


class CleanedTransactionMetadata:
    """Query it once for each batch of producers, in the order of offsets. `aborted`: at least the aborted transactions
    of the stretch.
    """

    __slots__ = ("_aborted", "_under_way")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for each in sorted(aborted, key=_FIRST_OFFSET):
            self._aborted.setdefault(each.producer_id, []).append(each)
        self._under_way: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._under_way.add(header.producer_id)
        known = self._aborted.get(header.producer_id)
        if known is None:
            return False
        found = bisect_right(known, header.base_offset, key=_FIRST_OFFSET) - 1
        return found >= 0 and header.base_offset < known[found].last_offset

    def is_empty_transaction_marker(self, header: BatchHeader) -> bool:
        """Return whether no batch of the transaction that this marker ends is left before it."""
        is_empty = header.producer_id not in self._under_way
        self._under_way.discard(header.producer_id)
        return is_empty
