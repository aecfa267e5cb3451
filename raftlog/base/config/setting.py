"""A setting: dotted name, type, default, bounds, unit, scope, one line of doc.

A frozen dataclass with fields made by `setting(...)` *is* a table. `settings_of(cls)` iterates it, and everything else
(parsing, DescribeConfigs, `raftlog config`, the reference) comes from it. Knows no particular setting.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal

Kind = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
Update = Literal["read-only", "per-broker", "cluster-wide"]

WIRE_TYPES: Mapping[str, int] = MappingProxyType(
    {
        "boolean": 1,
        "string": 2,
        "int": 3,
        "short": 4,
        "long": 5,
        "double": 6,
        "list": 7,
        "class": 8,
        "password": 9,
    }
)
"""The config types of DescribeConfigs v3+ (KIP-569)."""

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_BOUNDS: Mapping[str, tuple[int, int]] = {
    "short": (-SHORT_MAX - 1, SHORT_MAX),
    "int": (-INT_MAX - 1, INT_MAX),
    "long": (-LONG_MAX - 1, LONG_MAX),
}

UNITS = ("ms", "seconds", "minutes", "hours", "bytes", "percentage")


class SecretInText(ValueError):
    """A text breaks a rule and may hold a secret: the message has the rule, and must not be joined with the text."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table. `default` is a parsed value; `at_least` and `at_most` are inclusive.

    `synonyms` are the broker's names for a topic config, nearest first, each with the factor that turns its unit into
    the topic's. `applied` is False for a setting that is accepted, kept and shown, without effect.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    scope: str = "broker"
    unit: str = ""
    update: Update = "read-only"
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    nullable: bool = False
    applied: bool = True
    synonyms: tuple[tuple[str, int], ...] = ()
    read: Callable[[str], Any] | None = None
    show: Callable[[Any], str] | None = None

    @property
    def wire_type(self) -> int:
        return WIRE_TYPES[self.kind]

    @property
    def sensitive(self) -> bool:
        """True for values that no API and no log may show."""
        return self.kind == "password"

    @property
    def read_only(self) -> bool:
        """True if it cannot be changed in a running broker."""
        return self.update == "read-only"

    @property
    def dynamic(self) -> bool:
        return self.update != "read-only"

    @property
    def meaning(self) -> str:
        """The line of doc; for a setting without effect it ends by saying so."""
        return self.doc if self.applied else f"{self.doc} (accepted, without effect)"

    def parse(self, text: str) -> Any:
        """Parse configured text. Raise ValueError with the broken rule."""
        text = text.strip()
        if not text and self.nullable:
            return None
        try:
            value = (self.read or _READERS[self.kind])(text)
        except ValueError:
            if self.name.endswith(".ms") and (found := _DURATION.fullmatch(text.lower())):
                ms = int(found[1]) * _UNITS_MS[found[2]]
                raise ValueError(f"must be in milliseconds, such as {ms}") from None
            raise
        self._check(value)
        return value

    def parse_new(self, text: str) -> Any:
        """Parse a text that is being set. Empty items of a list are refused (Kafka since 4.2, KIP-1161).

        `parse` ignores them, for values that were stored before. An empty list has no empty item.
        """
        if self.kind == "list" and text.strip() and not all(map(str.strip, text.split(","))):
            raise ValueError("must have no empty item")
        return self.parse(text)

    def fault_of(self, error: ValueError, text: str) -> str:
        """Return `parse`'s error for a person, with the text unless it may contain a secret."""
        hidden = self.sensitive or isinstance(error, SecretInText)
        return str(error) if hidden else f"{error}, but is {text!r}"

    def _check(self, value: Any) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = _BOUNDS.get(self.kind, (None, None))
            at_least = self.at_least if self.at_least is not None else low
            at_most = self.at_most if self.at_most is not None else high
            if at_least is not None and not value >= at_least:
                raise ValueError(f"must be at least {at_least}")
            if at_most is not None and not value <= at_most:
                raise ValueError(f"must be at most {at_most}")
        self._check_choices(value)

    def _check_choices(self, value: Any) -> None:
        if self.choices:
            for each in value if isinstance(value, tuple) else (value,):
                if each not in self.choices:
                    raise ValueError(self._choices_rule())

    def _choices_rule(self) -> str:
        choices = ", ".join(self.choices)
        if self.kind != "list":
            return f"must be one of {choices}"
        return f"must be {choices}, or both" if len(self.choices) == 2 else f"must be of {choices}"

    def format(self, value: Any) -> str | None:
        """Turn a value into the text that Kafka's tools show; None stays None. The inverse of `parse`."""
        if value is None:
            return None
        if self.show is not None:
            return self.show(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})\s*([smhdw])")


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def integer(text: str) -> int:
    """Read a whole number. Raise ValueError with the rule."""
    try:
        return int(_without_separators(text))
    except ValueError:
        raise ValueError("must be a whole number") from None


def _double(text: str) -> float:
    try:
        return float(_without_separators(text))
    except ValueError:
        raise ValueError("must be a number") from None


def _without_separators(text: str) -> str:
    """Return a text; raise ValueError for underscores, which only Python accepts in a number."""
    if "_" in text:
        raise ValueError
    return text


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; blanks around items and empty items are dropped."""
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def distinct_words(text: str) -> tuple[str, ...]:
    """Split a list as `words`, without duplicates (Kafka since 4.2, KIP-1161)."""
    return tuple(dict.fromkeys(words(text)))


_READERS: Mapping[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "string": str,
    "class": str,
    "password": str,
    "int": integer,
    "short": integer,
    "long": integer,
    "double": _double,
    "list": words,
}


def setting(  # the columns of a row meet here
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    *,
    scope: str = "broker",
    unit: str = "",
    update: Update = "read-only",
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    nullable: bool | None = None,
    applied: bool = True,
    synonyms: tuple[tuple[str, int], ...] = (),
    read: Callable[[str], Any] | None = None,
    show: Callable[[Any], str] | None = None,
) -> Any:
    """Return a dataclass field that is one row of the table.

    `nullable` (empty text is None) defaults to whether the default is None.
    """
    row = Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=scope,
        unit=unit or next((each for each in UNITS if name.endswith("." + each)), ""),
        update=update,
        at_least=at_least,
        at_most=at_most,
        choices=choices,
        nullable=default is None if nullable is None else nullable,
        applied=applied,
        synonyms=synonyms,
        read=read,
        show=show,
    )
    shown = kind != "password"
    if isinstance(default, Mapping):  # dataclasses accept no unhashable default
        return dataclasses.field(default_factory=lambda: default, repr=shown, metadata={"setting": row})
    return dataclasses.field(default=default, repr=shown, metadata={"setting": row})


@cache
def settings_of(table: type[Any]) -> Mapping[str, tuple[str, Setting]]:
    """Return {dotted name: (attribute, row)} of a table, in the order of the table."""
    return MappingProxyType(
        {
            field.metadata["setting"].name: (field.name, field.metadata["setting"])
            for field in dataclasses.fields(table)
            if "setting" in field.metadata
        }
    )
