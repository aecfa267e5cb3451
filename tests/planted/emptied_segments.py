"""Bugs of readers where compaction has emptied segments, and of a cleaner that comes late or too early."""

from __future__ import annotations

import pytest

from raftlog.broker.handlers.shared import fetch_reader
from raftlog.broker.replicas import compaction
from raftlog.storage.log_reads import LogReads
from raftlog_chaos.scenarios.emptied_segments import emptied_segments
from tests.planted.plant import Plant


def end_answers_with_segments(patch: pytest.MonkeyPatch) -> None:
    """A consumer is sent the emptied last batch of a segment alone, and takes it for the end of the log."""
    patch.setattr(LogReads, "read_on", lambda log, read, max_bytes, **limits: read)


def wait_at_the_end_of_a_segment(patch: pytest.MonkeyPatch) -> None:
    """fetch.min.bytes waits for more, though it lies in the next segment and no event wakes the fetch."""
    end_answers_with_segments(patch)
    patch.setattr(fetch_reader, "leaves_records", lambda session, end_of: False)


def wait_for_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Closed segments are not cleaned until the recurring checkpoint has moved the recovery point."""
    patch.setattr(compaction, "_is_behind", lambda partition: False)


PLANTS = [
    Plant("answers-without-records", "compaction: emptied", emptied_segments, end_answers_with_segments, 4.0),
    Plant("waits-at-segment-ends", "fetch: min.bytes", emptied_segments, wait_at_the_end_of_a_segment, 4.0),
    Plant("cleaned-after-checkpoints", "compaction: late", emptied_segments, wait_for_the_checkpoint, 4.0),
]
