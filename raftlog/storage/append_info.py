"""A log's answer to an append."""

from __future__ import annotations

from typing import NamedTuple


class LogAppendInfo(NamedTuple):
    """The position of a produced batch. `log_append_time_ms` is -1 under CreateTime; a duplicate names its original."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
