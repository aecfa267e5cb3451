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
"""How often a phrase of related steps is drawn instead of a single step."""
THEME_SHARE: Final = 0.6
"""How often a plan has a theme, beside some of the usual words."""
WORD_OF_THEME_SHARE: Final = 0.8
OF_TOPICS: Final = frozenset({"create_partitions", "delete_topic", "create_topic"})
"""The usual words that matter to groups."""
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
"""Draws some related steps, such as the steps of a transaction."""


class Theme(NamedTuple):
    """Related words, and phrases of them. A plan has the words of one theme at most."""

    words: Mapping[str, Word]
    phrases: Sequence[tuple[set[str], Phrase]] = ()
    beside: frozenset[str] | None = None
    """The usual words that are drawn beside them; None: all of them, and their phrases."""


def draw(seed: int, number: int, usual: Theme, themes: Sequence[Theme]) -> Plan:
    """Draw a plan. Each has some of the words only, so that some meet each other often (swarm testing)."""
    random = Random(f"{seed}/{number}")
    theme = random.choice(themes) if random.random() < THEME_SHARE else Theme({})
    beside = usual if theme.beside is None else _part_of(usual, theme.beside)
    chosen = {name: word for name, word in beside.words.items() if name == "produce" or random.random() < 0.5}
    chosen |= {name: word for name, word in theme.words.items() if random.random() < WORD_OF_THEME_SHARE}
    phrases = (*beside.phrases, *theme.phrases)
    sayable = [phrase for needed, phrase in phrases if needed <= chosen.keys()]
    count = random.randint(SHORTEST, LONGEST)
    steps: list[Step] = []
    while len(steps) < count:
        if sayable and (random.random() < PHRASE_SHARE or not chosen):
            steps += random.choice(sayable)(random)
        else:
            (name,) = random.choices(list(chosen), [each.weight for each in chosen.values()])
            steps.append(Step(name, chosen[name].draw(random)))
    return Plan(random.choice((1, 1, 2)), random.choice(CONFIGS), tuple(steps[:LONGEST]))


def _part_of(theme: Theme, names: frozenset[str]) -> Theme:
    """Return some words of a theme, without phrases."""
    return Theme({name: word for name, word in theme.words.items() if name in names})


def mostly(random: Random, usual: Any, *odd: Any, share: float = 0.85) -> Any:
    """Return the usual value, or, in the rest of the cases, an odd value."""
    return usual if random.random() < share else random.choice(odd)
