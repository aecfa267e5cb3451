"""Parses config files and environment variables into {dotted name: text}, and writes .properties.

It knows their syntax, not the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({"\\": "\\\\", **{character: f"\\{name}" for name, character in _ESCAPES.items()}})
_ESCAPED_IN_KEYS = _ESCAPED | str.maketrans({each: f"\\{each}" for each in "=: #!"})
_BLANKS = " \t\f"
ENVIRONMENT_PREFIX = "RAFTLOG_"
LISTENER_VARIABLE = "RAFTLOG_LISTENER_NAME_"


def parse_file(text: str, *, name: str) -> dict[str, str]:
    """Read a config file by its suffix: .toml is TOML, everything else Java .properties.

    Raise ValueError with the position of a syntax error.
    """
    return parse_toml(text) if name.lower().endswith(".toml") else parse_properties(text)


def parse_toml(text: str) -> dict[str, str]:
    """Read TOML; nested tables, dotted keys and quoted keys mean the same dotted name; arrays are lists."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    values: dict[str, str] = {}
    for name, value in _leaves(table, ()):
        if name in values:
            raise ValueError(f"{name} is set twice, once as a quoted name and once as a table")
        values[name] = _toml_text(name, value)
    return values


def _leaves(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ",".join(map(str, value))
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(
        f"{name} is a {type(value).__name__}, but must be a string, a number, a boolean or a list"
    )


def parse_properties(text: str) -> dict[str, str]:
    """Read .properties by the rules of java.util.Properties.load; the last value of a repeated name counts."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        values[_unescape(line[:end])] = _unescape(rest)
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that end in an odd number of backslashes with the next; drop comments and blank lines."""
    pending = ""
    continued = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continued else line
        if not continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=: \t\f":
            return position
        position += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"\\u{digits} is not \\u and four hexadecimal digits") from None
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    try:  # outside the BMP a character is two \\u escapes (a surrogate pair), as Java writes it
        return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("\\u escape of half a surrogate pair") from None


def format_properties(values: Mapping[str, str]) -> str:
    """Return the lines of a .properties file that `parse_properties` reads as these values."""
    return "".join(
        f"{name.translate(_ESCAPED_IN_KEYS)}={_leading_blank(text.translate(_ESCAPED))}\n"
        for name, text in values.items()
    )


def _leading_blank(text: str) -> str:
    return f"\\{text}" if text.startswith(" ") else text


def environment_name(name: str) -> str:
    """Return the variable of a setting: log.dirs is RAFTLOG_LOG_DIRS, raftlog.log.level is RAFTLOG_LOG_LEVEL."""
    return ENVIRONMENT_PREFIX + name.removeprefix("raftlog.").upper().replace(".", "_").replace("-", "_")


def parse_environment(
    environment: Mapping[str, str], names: Iterable[str], of_listeners: Iterable[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Pick the RAFTLOG_* variables: ({dotted name: text}, other variables with the prefix).

    `of_listeners`: settings that a listener may have of its own. RAFTLOG_LISTENER_NAME_EXTERNAL_SSL_CLIENT_AUTH is
    listener.name.external.ssl.client.auth.
    """
    by_variable = {environment_name(name): name for name in names}
    endings = {environment_name(f".{name}").removeprefix(ENVIRONMENT_PREFIX): name for name in of_listeners}
    longest_first = sorted(endings, key=len, reverse=True)
    values, strangers = {}, []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = by_variable.get(variable)
        if name is None and variable.startswith(LISTENER_VARIABLE):
            rest = variable.removeprefix(LISTENER_VARIABLE)
            ending = next((each for each in longest_first if rest.endswith(each)), rest)
            listener = rest.removesuffix(ending).lower()
            name = f"listener.name.{listener}.{endings[ending]}" if listener else None
        if name is None:
            strangers.append(variable)
        else:
            values[name] = text
    return values, sorted(strangers)


def parse_override(text: str) -> tuple[str, str]:
    """Read name=value of an --override option."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ValueError(f"{text!r} must be name=value")
    return name.strip(), value.strip()
