"""Takes secrets out of texts that leave this machine: logs, settings, answers of the HTTP API.

A value goes out where its name is that of a secret, and so does each value that the command itself knows. Lines of
JSON are parsed, so their other fields stay. In other lines nothing marks the end of a value: the rest of the line goes
out, with the lines that continue it. After a name and a space, as in `password hunter2`, only a word goes out that is
no word of English, or what is quoted. What cannot be recognized stays: a password in a topic's name, `password
swordfish`, or `password p4ss=word`, which looks like a setting.

Every pattern has bounds, and long lines are cut first: the time grows with the length of a text, whatever is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

OUT: Final = "[secret]"
MIN_CHARS: Final = 4
"""Shorter values are not looked for: they would be found in words."""
LINE_CHARS: Final = 8192
"""Longer lines are cut."""
CUT: Final = " [cut]"

_WORDS: Final = (
    r"passw|passphrase|pwd|secret|token|credential|hmac|jaas|authorization|cookie|signature|salt|\buser_|"
    r"(?:api|access|private|stored|server|client|keystore|ssl)[._-]?key"
)
_HINTS: Final = (
    *(
        "passw",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "credential",
        "hmac",
        "jaas",
        "authorization",
        "cookie",
    ),
    *("signature", "salt", "user_", "key", "bearer", "basic", "@", "\\u"),
)
"""A line without any of these, in small letters, has no secret, unless it is a line of a key."""
_WORD: Final = re.compile(_WORDS, re.IGNORECASE)
_NAMED: Final = re.compile(
    rf"""(?:{_WORDS})(?P<more>[^\s=:>,"'\\()\[\]{{}}]{{0,200}}+)[\\"'\])]{{0,8}}"""
    r"""(?:\s{0,20}[\\]?[:=>]|\t|,\s{0,20}\\{0,8}["']value[\\"']{1,8}\s{0,20}:|(?P<weak>[,\s]))""",
    re.IGNORECASE,
)
"""A name, and what stands between it and its value. `weak` is that only after an option: `--password hunter2`."""
_NO_SECRET_NAME: Final = re.compile(
    r"(?i)[._-](?:file|location|url|ms|seconds|bytes|count|total|iterations)\Z"
)
_COUNTED: Final = re.compile(r"(?i)tokens\Z")
"""A number of such a name is no secret."""
_NO_SECRET: Final = re.compile(r"""(?i)\s{0,20}["']?(?:true|false|null|none)["']?\s{0,20}(?:\Z|[,}\]])""")
_NUMBER: Final = re.compile(r"\s{0,20}[0-9]{1,20}\s{0,20}(?:\Z|[,}\]])")
_HEADER: Final = re.compile(r"(?i)\b(bearer|basic)\s{1,20}\S{6,}")
_SAID: Final = re.compile(
    rf"""(?i)(?:{_WORDS})(?P<more>[^\s=:>,"'\\()\[\]{{}}]{{0,200}}+)\s{{1,20}}+"""
    r"""(?:(?:is|was|be|to|set|key)\s{1,20}+){0,3}+(?=(?P<value>'[^']{4,}|"[^"]{4,}|\S{4,}))"""
)
"""A name, and a word or a quoted text after it: `password is hunter2`."""
_PLAIN: Final = re.compile(
    r"[-/._]*[A-Za-z]+(?:[-'./_,:]+[A-Za-z]+)*|[A-Za-z_][\w.-]*=[^=].*|\d{1,3}(?:,\d{3})+|"
    r"[A-Z]{2,5}-[\d-]+|(?i:(?:scram-)?(?:sha|hs|rs)-?\d+)"
)
"""A word of a text, a path, a name with its value, a long number, `KIP-48`, an algorithm."""
_PUNCTUATION: Final = ".,;:!?()[]{}<>\"'`"
_VOTER: Final = r"\d{1,10}@[^\s@,]+:\d{1,5}(?::[\w-]{1,40})?"
_QUORUM: Final = re.compile(rf"(?:[\w.-]*=)?{_VOTER}(?:,{_VOTER})*[.;)\]]*")
"""The value of controller.quorum.voters, `1@a:9093,2@b:9093`, which has no logins."""
_PRINCIPAL: Final = re.compile(r"(?:[^:]*\W)?(?:User|Group|mailto):[^:]*")
_HOST: Final = re.compile(r"(?!(?:sha256|sha512):)(?:[A-Za-z\[]|\d+\.\d+\.\d+\.\d+|\d[\w.-]*[A-Za-z])")
_PART_OF_KEY: Final = re.compile(r"\s{0,20}[A-Za-z0-9+/=]{48,}\s*")
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY")
_KEY_ENDS: Final = "-----END"
_BLOCK: Final = re.compile(r"\s*[\[{(|>]?[-+0-9]{0,3}\s*")
"""The whole of a value that stands on the next lines, as in YAML."""


def without_secrets(text: str, known: Collection[str] = ()) -> str:
    """Return a text without the values of secrets, and without the `known` values."""
    return "\n".join(lines_without_secrets(text.split("\n"), known))


def lines_without_secrets(lines: Iterable[str], known: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a text, which have no end of line, without secrets."""
    search = _Search(known)
    for line in lines:
        found = search.line(line)
        if found is not None:
            yield found


class _Search:
    """Searches a text line by line, and drops the lines that continue a secret."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = sorted({each for each in known if len(each) >= MIN_CHARS}, key=len, reverse=True)
        self._end = ""
        self._is_continued = False
        self._indent: int | None = None

    def line(self, line: str) -> str | None:
        """Return a line without secrets; None if all of it is one."""
        if self._is_inside(line):
            return None
        for value in self._known:
            line = line.replace(value, OUT)
        if len(line) > LINE_CHARS:
            line = line[:LINE_CHARS] + CUT
        if _PART_OF_KEY.fullmatch(line):
            return OUT
        small = line.lower()
        if not any(hint in small for hint in _HINTS):
            return line
        if small.lstrip()[:1] in ("{", "["):
            try:
                return json.dumps(values_without_secrets(json.loads(line), self._known))
            except (ValueError, RecursionError):
                pass
        return self._text(line)

    def _is_inside(self, line: str) -> bool:
        if self._end:
            if self._end in line:
                self._end = ""
            return True
        if self._is_continued:
            self._is_continued = line.rstrip().endswith("\\")
            return True
        if self._indent is not None:
            if not line.strip() or _indent(line) > self._indent or line.lstrip().startswith("- "):
                return True
            self._indent = None
        return False

    def _text(self, line: str) -> str:
        if begin := _KEY_BEGINS.search(line):
            self._end = "" if _KEY_ENDS in line[begin.end() :] else _KEY_ENDS
            return self._text(line[: begin.start()]) + OUT
        for found in _NAMED.finditer(line):
            value = line[found.end() :]
            if _is_named(line, found) and not _is_harmless(line[found.start() : found.end("more")], value):
                self._look_for_end(line, value)
                return _without_logins(line[: found.end()]) + OUT
        return _without_logins(line)

    def _look_for_end(self, line: str, value: str) -> None:
        """Remember how the value goes on in the next lines, if it does."""
        for quotes in ('"""', "'''"):
            if value.count(quotes) % 2:
                self._end = quotes
                return
        opened = value.lstrip()[:1]
        self._is_continued = line.rstrip().endswith("\\")
        if _BLOCK.fullmatch(value) or (opened in ('"', "'") and value.count(opened) % 2):
            self._indent = _indent(line)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_named(line: str, found: re.Match[str]) -> bool:
    if found["weak"] is None:
        return found[0][:5].lower() != "user_" or "=" in found[0]
    before = line[max(0, found.start() - 64) : found.start()]
    return re.split(r"[^\w.\-]", before)[-1].startswith("-")


def _is_harmless(name: str, value: str) -> bool:
    if _NO_SECRET_NAME.search(name):
        return True
    if _COUNTED.search(name) and _NUMBER.match(value):
        return True
    return bool(_NO_SECRET.match(value))


def _without_logins(line: str) -> str:
    """Return a line without the logins of URLs and of headers."""
    line = "".join(_without_said(_HEADER.sub(rf"\1 {OUT}", line)))
    if "@" not in line:
        return line
    return "".join(_without_login(each) for each in re.split(r"(\s+)", line))


def _without_said(line: str) -> Iterator[str]:
    """Yield the parts of a line without words that follow the name of a secret and look like its value."""
    done = 0
    for found in _SAID.finditer(line):
        if found.end() < done:
            continue
        value = found["value"].strip(_PUNCTUATION)
        is_count = _COUNTED.search(found[0].rstrip()) is not None and value.isdecimal()
        if len(value) >= MIN_CHARS and not _PLAIN.fullmatch(value) and not is_count:
            begin = line.index(value, found.end())
            yield line[done:begin] + OUT
            done = begin + len(value)
    yield line[done:]


def _without_login(word: str) -> str:
    """Return a word without the login of a URL, or of `user:password@host`."""
    start, end = word.find("://"), word.rfind("@")
    if 0 <= start < end:
        return f"{word[: start + 3]}{OUT}{word[end:]}"
    return "".join(_without_bare_login(each) for each in re.split(r"""(["'`<>])""", word))


def _without_bare_login(word: str) -> str:
    end = word.rfind("@")
    start = word.find(":", 0, max(end, 0))
    if start < 0 or not _HOST.match(word, end + 1):
        return word
    if _QUORUM.fullmatch(word) or _PRINCIPAL.fullmatch(word, 0, end):
        return word
    return f"{word[: start + 1]}{OUT}{word[end:]}"


def values_without_secrets(found: Any, known: Collection[str] = ()) -> Any:
    """Return a tree of JSON without secrets: values of such names, and what `without_secrets` finds in texts."""
    if isinstance(found, Mapping):
        named = str(found.get("name", found.get("key", "")))
        return {
            without_secrets(str(name), known): _of_name(named if name == "value" else str(name), value, known)
            for name, value in found.items()
        }
    if isinstance(found, list | tuple):
        before = ["", *found]
        return [
            OUT if _is_option(name) and isinstance(each, str) else values_without_secrets(each, known)
            for name, each in zip(before, found, strict=False)
        ]
    return without_secrets(found, known) if isinstance(found, str) else found


def _of_name(name: str, value: Any, known: Collection[str]) -> Any:
    is_number = isinstance(value, int | float)
    if not value or isinstance(value, bool) or not is_secret(name) or (is_number and _COUNTED.search(name)):
        return values_without_secrets(value, known)
    return OUT


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word and is_secret(word)


def is_secret(name: str) -> bool:
    """Return whether a setting or a field of this name holds a secret; a file's name is none."""
    return bool(_WORD.search(name[:1000])) and not _NO_SECRET_NAME.search(name[-50:])
