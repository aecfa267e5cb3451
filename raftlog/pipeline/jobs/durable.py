"""Small files of JSON that are there as a whole or not at all, on any disk that driver and executors share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raftlog.base.disk import write_file


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a small file of JSON as a whole."""
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    write_file(path, text, beside=f".{uuid.uuid4().hex}")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what `write_json` wrote; None if there is no such file. Raises ValueError if it is something else."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return found
