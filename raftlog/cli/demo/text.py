"""The source of the demo's records: a file given, Debian's package log, or Python's own sources; line by line."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

MAX_TEXT_BYTES = 32 << 20
"""So much text is held at most; the demo sends it again from the start when it wants more."""
KEYS = 1_000
"""Keys for text with lines without keys."""

PACKAGE_LOGS = Path("/var/log")


class Text(NamedTuple):
    """Lines with their keys. Each record of a stream is the next line, and after the last the first again."""

    name: str
    records: list[tuple[bytes, bytes]]

    def record(self, number: int) -> tuple[bytes, bytes]:
        """Return the key and the value of one record."""
        return self.records[number % len(self.records)]


def find_text(file: Path | None) -> Text:
    """Return a file's lines, or else real text of this machine. Raises OSError when there is none."""
    if file is not None:
        return _read([file], name=str(file), key_of=_number)
    logs = sorted(path for path in PACKAGE_LOGS.glob("dpkg.log*") if path.suffix != ".gz")
    try:
        text = _read(logs, name=f"{PACKAGE_LOGS / 'dpkg.log'}", key_of=_package)
        if len(text.records) >= KEYS:
            return text
    except OSError:
        pass  # not Debian, or not for us to read
    sources = Path(sysconfig.get_paths()["stdlib"])
    return _read(sorted(sources.glob("*.py")), name=f"{sources}/*.py", key_of=_number)


def _read(paths: Iterable[Path], *, name: str, key_of: Callable[[int, bytes], bytes]) -> Text:
    records: list[tuple[bytes, bytes]] = []
    size = 0
    for path in paths:
        with path.open("rb") as lines:
            for raw in lines:
                line = raw.rstrip(b"\r\n")
                records.append((key_of(len(records), line), line))
                size += len(line)
                if size > MAX_TEXT_BYTES:
                    return Text(name, records)
    if not records:
        raise OSError(f"{name}: the file has no text")
    return Text(name, records)


def _number(index: int, _line: bytes) -> bytes:
    return b"%d" % (index % KEYS)


def _package(index: int, line: bytes) -> bytes:
    """Return the package a line of dpkg's log is about: date time action PACKAGE version version."""
    words = line.split()
    return words[3] if len(words) > 3 else _number(index, line)
