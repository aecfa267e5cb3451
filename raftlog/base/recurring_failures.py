"""Failures of recurring work for one log, group or transactional id, and the time of the next attempt.

A failure affects only its own subject. It is logged, shown by `/v1/health` and `/metrics`, and retried after a backoff
that doubles each time. Other subjects are not delayed. Pure state: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from raftlog.base.log import get_logger

FIRST_RETRY_S: Final = 30.0
"""The backoff after a subject's first failure."""
LONGEST_RETRY_S: Final = 3_600.0
"""The maximum backoff."""
MOST_NAMED: Final = 1_000
"""The maximum number of failures kept. Beyond it a failing subject is logged and retried without backoff."""

T = TypeVar("T")

log = get_logger(__name__)


class Failure(NamedTuple):
    """One failing subject. `chore` names the work, `reason` the last exception. `retry_at` is in loop seconds."""

    chore: str
    subject: str
    reason: str
    times: int
    retry_at: float


class Failures:
    """The failures of one broker, or of one coordinator."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str], Failure] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def __iter__(self) -> Iterator[Failure]:
        """Yield the failures that no success has cleared."""
        return iter(tuple(self._failures.values()))

    def attempt(
        self,
        chore: str,
        subject: str,
        now: float,
        work: Callable[[], T],
        *,
        raises: type[Exception],
    ) -> T | None:
        """Do some work for one subject and return its result; None if it failed, now or recently.

        `raises`: exceptions for the caller; any other exception is a failure of this subject alone.
        """
        if not self.is_due(chore, subject, now):
            return None
        try:
            result = work()
        except raises:
            raise
        except Exception as error:
            self.failed(chore, subject, error, now)
            return None
        self.succeeded(chore, subject)
        return result

    def is_due(self, chore: str, subject: str, now: float) -> bool:
        """Return whether a chore is due: always, unless it failed for this subject recently."""
        failure = self._failures.get((chore, subject))
        return failure is None or now >= failure.retry_at

    def failed(self, chore: str, subject: str, error: Exception, now: float) -> None:
        """Note a failure and log it, with the traceback."""
        before = self._failures.get((chore, subject))
        times = 1 if before is None else before.times + 1
        retry_s = min(FIRST_RETRY_S * 2 ** min(times - 1, 20), LONGEST_RETRY_S)
        reason = f"{type(error).__name__}: {error}"
        if before is not None or len(self._failures) < MOST_NAMED:
            self._failures[chore, subject] = Failure(chore, subject, reason, times, now + retry_s)
        log.error(
            "chore_failed",
            chore=chore,
            subject=subject,
            times=times,
            retry_after_s=retry_s,
            reason=reason,
            exc_info=error,
        )

    def succeeded(self, chore: str, subject: str) -> None:
        """Forget a failure; it need not exist."""
        if self._failures:
            self._failures.pop((chore, subject), None)

    def forget_subjects(self, kept: frozenset[str]) -> None:
        """Remove the failures of subjects that no longer exist."""
        for key in [key for key in self._failures if key[1] not in kept]:
            del self._failures[key]
