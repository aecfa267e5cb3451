"""Contexts: how clusters are reached, saved under names, as rpk's profiles and kubectl's contexts are.

A context is a file of client settings as -F takes it, with the addresses as `bootstrap.servers`. Settings of the HTTP
API begin with `raftlog.http.`; `raftlog.registry.url` is the schema registry, where that has an address of its own. The
file is readable for its user only, since it may hold a password.
The files are in `~/.config/raftlog/contexts` ($XDG_CONFIG_HOME is honoured); the file `current` beside it has a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raftlog.cli import exits
from raftlog.cli.exits import Failure

HTTP_URL: Final = "raftlog.http.url"
HTTP_TOKEN: Final = "raftlog.http.token"  # noqa: S105 - the name of a setting
HTTP_USER: Final = "raftlog.http.user"
HTTP_CACERT: Final = "raftlog.http.cacert"
REGISTRY_URL: Final = "raftlog.registry.url"
HTTP_SETTINGS: Final = (HTTP_URL, REGISTRY_URL, HTTP_TOKEN, HTTP_USER, HTTP_CACERT)
SUFFIX: Final = ".properties"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def folder() -> Path:
    """Return the folder of raftlog's files for this user."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given else Path(os.path.expanduser("~")) / ".config") / "raftlog"


def names() -> list[str]:
    """Return the names of the saved contexts, sorted."""
    return sorted(path.name.removesuffix(SUFFIX) for path in (folder() / "contexts").glob(f"*{SUFFIX}"))


def path_of(name: str) -> Path:
    """Return the path of a context's file. Raise Failure for what is no name."""
    if not _NAME.fullmatch(name):
        raise Failure(
            f"context {name!r}: a name has letters, digits, and . _ - (not first), at most 100", exits.USAGE
        )
    return folder() / "contexts" / (name + SUFFIX)


def existing(name: str) -> Path:
    """Return the path of a saved context. Raise Failure."""
    path = path_of(name)
    if not path.exists():
        known = (
            f"the contexts are {', '.join(names())}"
            if names()
            else "none is saved; see `raftlog context add`"
        )
        raise Failure(f"there is no context {name}; {known}", exits.NOT_FOUND)
    return path


def current() -> str:
    """Return the name of the current context, or ""."""
    try:
        return (folder() / "current").read_text("utf-8").strip()
    except OSError:
        return ""


def file_of(named: str, file: Path | None, *, is_addressed: bool) -> Path | None:
    """Return the file of settings that a command uses: -F, or a context's; None without either. Raise Failure.

    `named` is what --context says. The current context is not used if the command `is_addressed` otherwise.
    """
    if named and file:
        raise Failure("--context and -F both name settings: give one of them", exits.USAGE)
    if file or (is_addressed and not named):
        return file
    name = named or current()
    return existing(name) if name else None


def name_of(file: Path | None) -> str:
    """Return the name of the context whose file it is; "" for another file."""
    if file is None or file.parent != folder() / "contexts":
        return ""
    return file.name.removesuffix(SUFFIX)


def named(failure: Failure, file: Path | None) -> Failure:
    """Return the failure with the context in its message, if `file` is of a context."""
    if name := name_of(file):
        failure.args = (f"{failure} (context {name})",)
    return failure


def read_http(path: Path | None) -> Mapping[str, str]:
    """Return the settings of the HTTP API in a file of client settings; empty without a file. Raise Failure."""
    if path is None:
        return {}
    return {name: value for name, value in read(path).items() if name in HTTP_SETTINGS}


def read(path: Path) -> dict[str, str]:
    """Return all settings of a file. Raise Failure."""
    from raftlog.base.config.files import parse_properties

    try:
        return dict(parse_properties(path.read_text("utf-8-sig")))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"{path}: {reason}", exits.USAGE) from None


def save(name: str, settings: Mapping[str, str]) -> None:
    """Write a context. Raise Failure."""
    from raftlog.base.config.files import format_properties

    _write(path_of(name), format_properties(settings))


def use(name: str) -> None:
    """Choose the current context; "" means no context. Raise Failure."""
    if name:
        existing(name)
    _write(folder() / "current", f"{name}\n")


def delete(name: str) -> None:
    """Remove a context, and end its use as the current context. Raise Failure."""
    path = existing(name)
    if current() == name:
        use("")
    try:
        path.unlink()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def _write(path: Path, content: str) -> None:
    from raftlog.base.disk import make_folders, write_file

    try:
        for each in (folder(), path.parent):
            make_folders(each, 0o700)
        write_file(path, content, secret=True)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
