"""`raftlog version`: which raftlog this is, and with --json what it runs on."""

from __future__ import annotations

import json as json_module
import platform
from importlib import metadata
from typing import Annotated

import typer

from raftlog import __version__

LIBRARIES = ("confluent-kafka", "kafka-python", "kio", "pysyncobj", "aiohttp", "uvloop", "pyspark")


def version(
    *, json: Annotated[bool, typer.Option("--json", "-J", help="also of Python and librdkafka")] = False
) -> None:
    """Print the version."""
    if not json:
        print(f"raftlog {__version__}")
        return
    found = {"raftlog": __version__, "python": platform.python_version(), "platform": platform.platform()}
    print(json_module.dumps({**found, "libraries": _libraries()}))


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
