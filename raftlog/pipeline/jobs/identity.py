"""The owner of a checkpoint: a note in its folder that names the job and its fixed options.

Spark accepts any checkpoint and continues from its offsets, whatever query wrote it. The note is written before Spark
writes, so a checkpoint without a note is foreign. Spark is not known here.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raftlog.base.disk import make_folders, write_file
from raftlog.pipeline.jobs.control import JobError

NOTE: Final = "raftlog-job.json"
OWNER: Final = "_raftlog-job.json"
"""In a folder of results. Readers of Parquet pass over names that begin with an underscore."""


def claim_checkpoint(checkpoint: Path, job: str, fixed: Mapping[str, str]) -> str:
    """Return the id of the checkpoint's job, a new id for an empty folder.

    `fixed` are the options that cannot change between two runs. Raise JobError with the changed options.
    """
    mine = {"job": job, **fixed}
    found = _note(checkpoint / NOTE)
    if found is None:
        if checkpoint.exists() and any(checkpoint.iterdir()):
            raise JobError(
                f"checkpoint: {checkpoint} is not empty and not a raftlog job's; use an empty or a new folder"
            )
        make_folders(checkpoint.absolute())
        identity = uuid.uuid4().hex[:12]
        _write_json(checkpoint / NOTE, {"id": identity, **mine})
        return identity
    differing = [
        f"{name} was {found.get(name)!r} and is now {value!r}"
        for name, value in mine.items()
        if found.get(name) != value
    ]
    if differing:
        raise JobError(
            f"checkpoint: {checkpoint} is of another query: {'; '.join(differing)}. "
            "Use another folder, or the options that the query began with"
        )
    return found["id"]


def has_batches(query: Path) -> bool:
    """Return whether Spark's checkpoint of a query notes any batch as done."""
    commits = query / "commits"
    return commits.is_dir() and any(each.name.isdigit() for each in commits.iterdir())


def claim_results(folder: Path, identity: str, *, begun: bool) -> None:
    """Note that a folder of results belongs to a checkpoint, which has `begun` to write. Raises JobError."""
    found = _note(folder / OWNER)
    if found is None:
        if begun:
            raise JobError(f"path: {folder} no longer exists, but its checkpoint lists files in it")
        if folder.exists() and any(folder.iterdir()):
            raise JobError(
                f"path: {folder} is not empty and was not written by this job; use an empty or a new folder"
            )
        make_folders(folder.absolute())
        _write_json(folder / OWNER, {"id": identity})
    elif found["id"] != identity:
        raise JobError(
            f"path: {folder} holds the results of another checkpoint, and would hold records twice. "
            "Continue with that checkpoint, or use another path"
        )


def _note(path: Path) -> dict[str, str] | None:
    try:
        found = _read_json(path)
    except (OSError, ValueError) as error:
        raise JobError(f"{path} cannot be read: {error}") from None
    if found is not None and not isinstance(found.get("id"), str):
        raise JobError(f"{path} names no job")
    return found


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a small file of JSON, which is there as a whole or not at all, on any disk."""
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    write_file(path, text, beside=f".{uuid.uuid4().hex}")


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return what `_write_json` wrote; None if there is no such file. Raises ValueError if it is something else."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return found
