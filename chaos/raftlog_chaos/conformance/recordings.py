"""Apache Kafka's answers as files, one file for each subject, so that raftlog can be compared where there is no Java.

`make kafka-record` writes them. A step is a line, so a change of an answer is a line in a version's difference.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from raftlog.base.disk import make_folders, write_file
from raftlog_chaos.conformance.compare import Observation

FOLDER: Final = Path(__file__).parent / "recorded"


def path_of(subject: str, folder: Path = FOLDER) -> Path:
    """Return the file of a subject."""
    return folder / f"{subject}.json"


def write(subject: str, version: str, date: str, histories: Mapping[str, Observation]) -> None:
    """Write the file of a subject: histories by name, with Kafka's version and the date on which it was asked."""
    lines = ["{", f' "kafka": {json.dumps(version)},', f' "date": {json.dumps(date)},', ' "histories": {']
    lines.append(",\n".join(_history(name, steps) for name, steps in sorted(histories.items())))
    make_folders(FOLDER)
    write_file(path_of(subject), "\n".join([*lines, " }", "}", ""]))


def _history(name: str, steps: Iterable[Mapping[str, Any]]) -> str:
    inner = ",\n".join(f"   {json.dumps(step)}" for step in steps)
    return f"  {json.dumps(name)}: [\n{inner}\n  ]"


@cache
def read(subject: str, folder: Path = FOLDER) -> Mapping[str, Any]:
    """Return the recording of a subject: `kafka`, `date` and `histories`; without a recording there are no
    histories.
    """
    path = path_of(subject, folder)
    packed = path.with_name(f"{path.name}.gz")  # as they are in an image
    if packed.exists():
        text = gzip.decompress(packed.read_bytes())
    elif path.exists():
        text = path.read_bytes()
    else:
        return {"kafka": "", "date": "", "histories": {}}
    found: Mapping[str, Any] = json.loads(text)
    return found
