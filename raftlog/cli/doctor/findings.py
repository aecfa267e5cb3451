"""The findings of `raftlog doctor`: sentences, each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding: fine, worth knowing, or to be fixed before the node is relied on."""

    OK = "ok"
    NOTE = "note"
    MEND = "mend"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `advice` says what to do; empty if no action is needed."""

    level: Level
    about: str
    sentence: str
    advice: str = ""


def ok(about: str, sentence: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Level.OK, about, sentence)


def note(about: str, sentence: str, advice: str) -> Finding:
    """Return a finding that an operator should know of."""
    return Finding(Level.NOTE, about, sentence, advice)


def mend(about: str, sentence: str, advice: str) -> Finding:
    """Return a finding that must be mended."""
    return Finding(Level.MEND, about, sentence, advice)
