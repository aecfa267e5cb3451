"""Plans: what a drawn history does, as plain data. A seed and a number make the same plan on every machine.

A step names slots (the first plain producer, the second transactional id), not what a broker gave out. So a plan from
which steps are left out is a plan too, and a difference can be shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

LONGEST: Final = 20
"""Steps of a plan, without the reading at its end."""
SHORTEST: Final = 4
PHRASE_SHARE: Final = 0.3
"""How often some steps that belong together are drawn, instead of one."""
CONFIGS: Final[tuple[Mapping[str, str | int], ...]] = (
    *({} for _ in range(6)),
    {"message.timestamp.type": "LogAppendTime"},
    {"compression.type": "gzip"},
    {"max.message.bytes": 200},
    {"message.timestamp.after.max.ms": 3_600_000},
)
"""The settings with which a topic is made."""


class Step(NamedTuple):
    """A word and what it is about."""

    word: str
    fields: Mapping[str, Any]


class Plan(NamedTuple):
    """A topic and what happens to it."""

    partitions: int
    configs: Mapping[str, str | int]
    steps: tuple[Step, ...]

    def only(self, kept: Sequence[int]) -> Plan:
        """Return the plan with these steps alone."""
        return self._replace(steps=tuple(self.steps[at] for at in kept))


class Word(NamedTuple):
    """A word: how often it is drawn, and what draws its fields. `play.Play` has a method of its name."""

    weight: int
    draw: Callable[[Random], Mapping[str, Any]]


Phrase = Callable[[Random], list[Step]]
"""Draws some steps that belong together, such as those of a transaction."""


def draw(
    seed: int, number: int, words: Mapping[str, Word], phrases: Sequence[tuple[set[str], Phrase]]
) -> Plan:
    """Draw a plan. Each has some of the words only, so that some meet each other often (swarm testing)."""
    random = Random(f"{seed}/{number}")
    chosen = {name: word for name, word in words.items() if name == "produce" or random.random() < 0.5}
    sayable = [phrase for needed, phrase in phrases if needed <= chosen.keys()]
    count = random.randint(SHORTEST, LONGEST)
    steps: list[Step] = []
    while len(steps) < count:
        if sayable and random.random() < PHRASE_SHARE:
            steps += random.choice(sayable)(random)
        else:
            (name,) = random.choices(list(chosen), [each.weight for each in chosen.values()])
            steps.append(Step(name, chosen[name].draw(random)))
    return Plan(random.choice((1, 1, 2)), random.choice(CONFIGS), tuple(steps[:LONGEST]))


def mostly(random: Random, usual: Any, *odd: Any, share: float = 0.85) -> Any:
    """Return the usual value, or, in the rest of the cases, one of the odd ones."""
    return usual if random.random() < share else random.choice(odd)
