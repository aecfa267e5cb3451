"""Logs on a real disk, with segments small enough to roll often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.disk import RealDisk
from raftlog.storage.log import Log

OpenLog = Callable[..., Log]


@pytest.fixture
def open_log(tmp_path: Path) -> OpenLog:
    """Open the log of one partition folder; call again to start anew."""

    def open_(
        *, recovery_point: int = 0, clean: bool = False, name: str = "t-0", topic_id=None, **config: object
    ) -> Log:
        config.setdefault("segment_bytes", 1000)
        config.setdefault("index_interval_bytes", 200)
        return Log.open(
            RealDisk(),
            str(tmp_path / name),
            config=TopicConfig(**config),  # type: ignore[arg-type]
            recovery_point=recovery_point,
            clean=clean,
            topic_id=topic_id,
            now_ms=1_000,
        )

    return open_
