"""Takes secrets out of texts that leave this machine: logs, settings, answers of the HTTP API.

A value goes out where its name is that of a secret, wherever it stands, and so does each value that the command itself
knows. What cannot be recognized stays: a password in a record or in the name of a topic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

OUT: Final = "[secret]"
MIN_CHARS: Final = 4
"""Shorter values are not looked for: they would be found in words."""
_WORDS: Final = (
    "password|passwd|secret|token|credential|hmac|jaas|api[._-]?key|private[._-]?key|authorization"
)
_NAME: Final = rf"[\w.\-]*(?:{_WORDS})[\w.\-]*"
_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:Bearer|Basic)\s+\S+|[^\s,;}\])"']+)"""
_NAMED: Final = re.compile(
    rf"""(?P<name>(?<![\w]){_NAME}["']?\s*[:=]\s*)(?P<value>{_VALUE})""", re.IGNORECASE
)
_JAAS: Final = re.compile(r"(?im)^(?P<name>[^\n=:]*jaas[\w.]*\s*[=:]\s*).*(?:\\\n.*)*$")
_USERS: Final = re.compile(r"""(?P<name>\buser_[^\s=]+=)(?P<value>"[^"]*"|\S+)""")
_HEADER: Final = re.compile(r"(?P<name>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})")
_IN_URL: Final = re.compile(r"(?P<name>://[^/\s:@]+:)(?P<value>[^/\s@]+)(?=@)")
_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_HARMLESS: Final = re.compile(r"(?i)\b(?:true|false|null|none|[0-9]+)\b|\[secret\]")
"""Values that tell no secret: a number of tokens, a flag."""


def without_secrets(text: str, known: Collection[str] = ()) -> str:
    """Return a text without the values of secrets, and without the `known` values."""
    for value in sorted({each for each in known if len(each) >= MIN_CHARS}, key=len, reverse=True):
        text = text.replace(value, OUT)
    text = _KEY.sub(OUT, text)
    text = _JAAS.sub(rf"\g<name>{OUT}", text)
    for pattern in (_USERS, _HEADER, _IN_URL):
        text = pattern.sub(rf"\g<name>{OUT}", text)
    return _NAMED.sub(_replaced, text)


def _replaced(found: re.Match[str]) -> str:
    value = found["value"]
    if _HARMLESS.fullmatch(value.strip("\"'")):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{quote}{OUT}{quote}"


def values_without_secrets(found: Any, known: Collection[str] = ()) -> Any:
    """Return a tree of JSON without secrets: values of such names, and what `without_secrets` finds in texts."""
    if isinstance(found, Mapping):
        return {
            name: OUT
            if value and is_secret(str(name)) and isinstance(value, str)
            else values_without_secrets(value, known)
            for name, value in found.items()
        }
    if isinstance(found, list | tuple):
        return [values_without_secrets(each, known) for each in found]
    return without_secrets(found, known) if isinstance(found, str) else found


def is_secret(name: str) -> bool:
    """Return whether a setting or a field of this name holds a secret; a file's name is none."""
    return bool(_SECRET_NAME.fullmatch(name)) and not name.endswith((".file", ".location", "_ms", ".ms"))
