"""Files that are there as a whole or not at all, on any disk that driver and executors share."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path, below: Path) -> None:
    """Make a folder and those above it down to `below`, and bring their names to the disk."""
    if folder == below or folder.is_dir():
        return
    make_folders(folder.parent, below)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def put(written: Path, final: Path) -> None:
    """Sync a file that was written and give it its name, in place of an older one of that name."""
    descriptor = os.open(written, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(written, final)
    sync_folder(final.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a small file of JSON as a whole."""
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        beside.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
        put(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what `write_json` wrote; None if there is no such file. Raises ValueError if it is something else."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return found
