"""Event loop turns that a request held for too long, by API: counted in the metrics and logged.

While a request is handled no other is, and no heartbeat leaves: a turn as long as broker.session.timeout.ms gets this
node fenced. So a turn of LONG_TURN_S is a bug of ours, whatever the request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from raftlog.base.log import get_logger
from raftlog.protocol.apis import APIS

Result = TypeVar("Result")

LONG_TURN_S: Final = 0.05

LOG_EVERY_S: Final = 10.0
"""The log reports at most one long turn of an API in this many seconds; the metrics count all."""

log = get_logger(__name__)


class LongTurns:
    """Records long turns in `counts`, by API key. `clock` is in seconds; a simulation's stands still during a turn."""

    __slots__ = ("_clock", "_counts", "_logged_at")

    def __init__(self, clock: Callable[[], float], counts: defaultdict[int, int]) -> None:
        self._clock = clock
        self._counts = counts
        self._logged_at: dict[int, float] = {}

    def note(self, api_key: int, seconds: float) -> None:
        """Count a turn, if it was long."""
        if seconds <= LONG_TURN_S:
            return
        self._counts[api_key] += 1
        now = self._clock()
        if now - self._logged_at.get(api_key, now - LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at[api_key] = now
            api = APIS.get(api_key)
            log.warning(
                "request_blocked_event_loop",
                api=api.name if api else api_key,
                milliseconds=round(seconds * 1000),
            )

    def timed(
        self, api_key: int, work: Awaitable[Result], note: Callable[[int, float], None] | None = None
    ) -> Awaitable[Result]:
        """Return work for a request, to be awaited.

        `note` is called with the duration of each step, which is a turn of its own.
        """
        return _Timed(self, api_key, work, note or self.note)

    def steps_of(
        self, api_key: int, work: Awaitable[Result], note: Callable[[int, float], None]
    ) -> Generator[Any, Any, Result]:
        """Drive work from one wait to the next, and record how long each step took."""
        steps, clock = work.__await__(), self._clock
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            began_at = clock()
            try:
                waits_for = step(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # what the work returns
            finally:
                note(api_key, clock() - began_at)
            try:
                given = yield waits_for
                step = steps.send
            except BaseException as error:  # cancellations too: the work handles them
                step, given = steps.throw, error


class _Timed:
    """Work with timed steps."""

    __slots__ = ("_api_key", "_note", "_turns", "_work")

    def __init__(
        self, turns: LongTurns, api_key: int, work: Awaitable[Any], note: Callable[[int, float], None]
    ) -> None:
        self._turns = turns
        self._api_key = api_key
        self._work = work
        self._note = note

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._turns.steps_of(self._api_key, self._work, self._note)
