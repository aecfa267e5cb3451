"""Carries out the decisions of `progress` on a table: takes it over and appends, in several attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from raftlog.tables.patience import watched
from raftlog.tables.progress import (
    Attempt,
    Head,
    LeaderEpochs,
    Offsets,
    Outcome,
    Source,
    TableError,
    check_source,
    judge,
    next_attempt,
)
from raftlog.tables.table import Conflict, NoLogin, StoreFailed, Table

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 8
PAUSE_S: Final = 0.1
"""The first pause between two attempts. Each pause is twice as long as the last, some 13 seconds in all."""


class Unsettled(TableError):
    """The store failed in each attempt. A restart continues from what is in the table."""


class TableWriter:
    """The only writer of a table, from `take_over` on until another writer takes it over.

    `wait` pauses between attempts, for a number of seconds. `say` gets a line while a catalog or store does not answer,
    and for each attempt that failed. All methods raise TableError.
    """

    def __init__(
        self,
        table: Table,
        source: Source,
        wait: Callable[[float], None],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.table = table
        self.head = Head("", None)
        """The newest version that this writer has read."""
        self._source, self._wait, self._say = source, wait, say
        self._failure: Exception | None = None

    def read_head(self) -> Head:
        """Read the newest version of the table, which is made if there is none."""
        for _ in self._attempts():
            try:
                head = self._ask(self.table.load)
                if head is None:
                    self._ask(self.table.create, self._source)
                    continue
            except (Conflict, StoreFailed) as error:
                self._failure = error
                continue
            check_source(head, self._source)
            self.head = head
            break
        return self.head

    def exists(self) -> bool:
        """Return whether there is a table."""
        for _ in self._attempts():
            try:
                return self._ask(self.table.load) is not None
            except StoreFailed as error:
                self._failure = error
        raise AssertionError("the attempts end with an error")

    def read(self, columns: Sequence[str], offset: int) -> pa.Table:
        """Return columns of the rows from an offset on, of the newest version that was read."""
        for _ in self._attempts():
            try:
                return self._ask(self.table.read, columns, offset)
            except StoreFailed as error:
                self._failure = error
        raise AssertionError("the attempts end with an error")

    def take_over(self, begin: Offsets, no_rows: pa.Table, *, epoch: int | None = None) -> None:
        """Take the next epoch, so that commits of an earlier writer fail.

        `begin`: where to begin in partitions that the table does not know, which the commit writes down. `no_rows`:
        the columns of the table, without rows. `epoch`: see `next_attempt`.
        """
        for _ in self._attempts():
            attempt = next_attempt(self.read_head(), begin, epoch)
            try:
                self._ask(self.table.append, self.head, attempt, no_rows)
            except (
                Conflict,
                StoreFailed,
            ) as error:  # if it is in the table after all, the next epoch is as good
                self._failure = error
                continue
            self._check_kept(attempt)
            break

    def append(self, rows: pa.Table, end: Offsets, leader_epochs: LeaderEpochs | None = None) -> None:
        """Append rows and move the offsets on to `end`, exactly once. `leader_epochs`: all that are known there."""
        offsets = self.head.offsets
        attempt = Attempt(self.head.epoch, offsets, {**offsets, **end}, leader_epochs or {})
        for _ in self._attempts():
            try:
                self._ask(self.table.append, self.head, attempt, rows)
            except (Conflict, StoreFailed) as error:
                self._failure = error
                if judge(self.read_head(), attempt) is Outcome.DONE:
                    break
            else:
                self._check_kept(attempt)
                break

    def refresh(self) -> None:
        """Read the head after a version that moved no offsets, such as merged files."""
        attempt = Attempt(self.head.epoch, self.head.offsets, self.head.offsets)
        judge(self.read_head(), attempt)

    def tidy(self) -> Mapping[str, Any]:
        """Merge small files and delete files that no version needs. Raise StoreFailed, as no other method."""
        return self._ask(self.table.tidy)

    def _ask(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a method of the table."""
        with watched(lambda: self.table.asked, self._say):
            return call(*arguments, **options)

    def _check_kept(self, attempt: Attempt) -> None:
        """Read the head after an acknowledged commit. Raise TableError if it is not in the table."""
        if judge(self.read_head(), attempt) is not Outcome.DONE:
            raise TableError(f"{self.table.where}: an acknowledged commit is not in the table")

    def _attempts(self) -> Iterator[int]:
        """Yield the number of each attempt, with a pause between two. Raise Unsettled after the last.

        A login that was missing from the start ends them. A login that was found before may be away for a while.
        """
        for number in range(ATTEMPTS):
            if number:
                if isinstance(self._failure, NoLogin) and not self.head.version:
                    break
                if isinstance(self._failure, StoreFailed):
                    self._say(f"{self._failure}; trying again ({number + 1} of {ATTEMPTS})")
                self._wait(PAUSE_S * 2 ** (number - 1))
            yield number
        failure, self._failure = self._failure, None
        raise Unsettled(f"{self.table.where}: {failure}")
