"""Taxi trips as they look in a city: made by chance from a seed, and counted without Spark. Pure.

Few zones have most of the trips. There are two rush hours a day and a late Friday and Saturday. Slow hours are longer
for the same distance. Money is in cents, so that sums are exact. Trips are reported when they end, so their starts are
out of order by up to `LONGEST_S`.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

ZONES: Final = 60
BEGIN: Final = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
"""A Monday."""
DAYS: Final = 14
LONGEST_S: Final = 5_400
DEMAND: Final = (18, 12, 8, 6, 7, 14, 34, 62, 80, 66, 55, 54, 58, 56, 58, 64, 72, 88, 96, 84, 66, 54, 42, 28)
"""Trips by hour of a weekday, in proportion."""
MALFORMED: Final = ('{"trip": 1, "zone"', '{"trip": 2, "zone": "downtown", "fare_cents": 900}', "[]")
MALFORMED_EVERY: Final = 5_003
WINDOW_S: Final = 3_600
SCHEMA: Final = "trip LONG, zone INT, picked_up TIMESTAMP, seconds INT, fare_cents LONG"


@dataclass(frozen=True, slots=True)
class Demand:
    """Trips from one zone within one window, and what they paid."""

    trips: int
    fare_cents: int


def trips(count: int, seed: int) -> Iterator[str]:
    """Yield `count` lines of JSON in the order of the trips' ends, one line in `MALFORMED_EVERY` malformed."""
    chance = random.Random(seed)
    popularity = list(accumulate(1 / (rank + 2) for rank in range(ZONES)))
    zones = chance.sample(range(1, ZONES + 1), ZONES)
    beginnings = [_beginning(chance) for _ in range(count)]
    ended = sorted((second + (took := _duration(chance, second)), second, took) for second in beginnings)
    for number, (_end, second, took) in enumerate(ended):
        if number % MALFORMED_EVERY == MALFORMED_EVERY - 1:
            yield MALFORMED[number // MALFORMED_EVERY % len(MALFORMED)]
            continue
        yield json.dumps(
            {
                "trip": number,
                "zone": chance.choices(zones, cum_weights=popularity)[0],
                "picked_up": (BEGIN + dt.timedelta(seconds=second)).isoformat().replace("+00:00", "Z"),
                "seconds": took,
                "fare_cents": 330 + 5 * round(took * chance.uniform(0.3, 0.7)),
            }
        )


def _beginning(chance: random.Random) -> int:
    """Return when a trip begins, in seconds after BEGIN."""
    day = chance.randrange(DAYS)
    late = day % 7 in (4, 5)
    weights = [share + (50 if late and hour in (0, 1, 22, 23) else 0) for hour, share in enumerate(DEMAND)]
    hour = chance.choices(range(24), weights)[0]
    return (day * 24 + hour) * 3_600 + chance.randrange(3_600)


def _duration(chance: random.Random, second: int) -> int:
    slow = 1 + DEMAND[second // 3_600 % 24] / 120
    return max(60, min(LONGEST_S, round(chance.lognormvariate(6.3, 0.55) * slow)))


def count_demand(lines: Iterable[str]) -> tuple[dict[tuple[str, int], Demand], int]:
    """Return the demand by (hour's beginning as ISO 8601, zone), and how many lines are malformed: no Spark in it."""
    number: Counter[tuple[str, int]] = Counter()
    paid: Counter[tuple[str, int]] = Counter()
    malformed = 0
    for line in lines:
        try:
            trip = json.loads(line)
            key = (trip["picked_up"][:13], int(trip["zone"]))
        except (ValueError, KeyError, TypeError):
            malformed += 1
            continue
        number[key] += 1
        paid[key] += trip["fare_cents"]
    return {key: Demand(count, paid[key]) for key, count in number.items()}, malformed
