"""A job's options as a table: one dataclass field each, from which come the TOML file's keys, the flags and their help.

All faults are collected and reported together. Pure: no Spark, no files.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
REQUIRED: Final[Any] = dataclasses.MISSING

Check = Callable[[Any], str | None]
"""Says what is wrong with a value, or None."""


class SettingFaults(ValueError):
    """The faults of a job's options, each beginning with the option's name."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One option as users see it. `many`: may be given several times; `kind` is then the type of each.

    The value of a `secret` option is not quoted.
    """

    name: str
    kind: type
    many: bool
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def setting(doc: str, default: Any = REQUIRED, *, least: float | None = None, secret: bool = False) -> Any:
    """Return a field of an options class: its line of doc, its default unless it must be given, the least allowed.

    A secret option may hold a password, and is not in the text of the options.
    """
    return dataclasses.field(default=default, repr=not secret, metadata={"doc": doc, "least": least})


def rows(options: type) -> list[Row]:
    """Return the options of a class, in the order of its fields."""
    hints = get_type_hints(options)
    return [_row(field, hints[field.name]) for field in dataclasses.fields(options)]


def _row(field: dataclasses.Field[Any], hint: Any) -> Row:
    many = get_origin(hint) is tuple
    kind = get_args(hint)[0] if many else hint
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(kind, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    return Row(
        name=field.name,
        kind=str if choices else kind,
        many=many,
        default=field.default,
        doc=field.metadata["doc"],
        choices=choices,
        least=field.metadata["least"],
        secret=not field.repr,
    )


def build(options: type[T], *sources: Mapping[str, Any]) -> T:
    """Make a job's options of several sources, where later sources win; None stands for not given. Raises
    SettingFaults.

    A class may have a method `faults()` that returns what is wrong between options.
    """
    table = {row.name: row for row in rows(options)}
    given, faults = _merge(table, sources)
    values: dict[str, Any] = {}
    for row in table.values():
        before = len(faults)
        if row.name in given:
            values[row.name] = _checked(row, given[row.name], faults)
        elif row.default is REQUIRED:
            faults.append(f"{row.name}: must be given")
        if len(faults) > before:
            values[row.name] = _STAND_INS.get(row.kind) if row.default is REQUIRED else row.default
    made = options(**values)
    faults += getattr(made, "faults", list)()
    if faults:
        raise SettingFaults(faults)
    return made


def _merge(
    table: Mapping[str, Row], sources: tuple[Mapping[str, Any], ...]
) -> tuple[dict[str, Any], list[str]]:
    given: dict[str, Any] = {}
    faults = []
    for source in sources:
        for spelled, value in source.items():
            name = spelled.replace("-", "_")
            if name not in table:
                close = difflib.get_close_matches(name, table, n=1)
                faults.append(f"{spelled}: unknown option" + (f", {close[0]} is near" if close else ""))
            elif value is not None:
                given[name] = value
    return given, faults


def _checked(row: Row, value: Any, faults: list[str]) -> Any:
    """Return a value as its type, noting what is wrong with it."""
    if not row.many:
        return _one(row, value, faults)
    if not isinstance(value, list | tuple):
        value = [value]
    return tuple(_one(row, each, faults) for each in value)


def _one(row: Row, value: Any, faults: list[str]) -> Any:
    if row.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    kind: type[Any] = row.kind
    if not isinstance(value, kind) or (row.kind is not bool and isinstance(value, bool)):
        shown = "a value" if row.secret else repr(value)
        faults.append(f"{row.name}: {shown} is not {_KINDS.get(row.kind, row.kind.__name__)}")
    elif row.choices and value not in row.choices:
        faults.append(f"{row.name}: {value!r} is none of {', '.join(row.choices)}")
    elif row.least is not None and float(value) < row.least:
        faults.append(f"{row.name}: {value} is below {row.least:g}")
    elif row.kind is str and not row.choices and value == "" and row.default != "":
        faults.append(f"{row.name}: is empty")
    return value


_STAND_INS: Final[dict[type, Any]] = {str: "", int: 1, float: 1.0}
"""For what is missing or wrong, so that the rest can be judged as well."""
_KINDS: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
