"""Recorded answers are read as they lie in the repository, and packed, as they lie in an image."""

from __future__ import annotations

import gzip
from pathlib import Path

from raftlog_chaos.conformance import recordings


def test_recordings_are_read_plain_and_packed(tmp_path: Path) -> None:
    """The image packs the files; a subject that has none has no histories."""
    plain = recordings.path_of("quotas")
    (tmp_path / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    packed = recordings.read("quotas", tmp_path)
    assert packed == recordings.read("quotas")
    assert packed["histories"]
    assert recordings.read("nothing", tmp_path)["histories"] == {}
