"""Facts that nodes report, parsed from text in their own format."""

from __future__ import annotations

import json
from pathlib import Path

from raftlog_chaos.attacks.facts import LogTail, buckets_in, fencings_in, longest_s, unforeseen_in

PAGE = """
# TYPE raftlog_event_loop_own_lag_seconds histogram
raftlog_event_loop_own_lag_seconds_bucket{le="0.05"} 90
raftlog_event_loop_own_lag_seconds_bucket{le="0.5"} 100
raftlog_event_loop_own_lag_seconds_bucket{le="2.5"} %s
raftlog_event_loop_own_lag_seconds_bucket{le="+Inf"} %s
raftlog_event_loop_lag_seconds_bucket{le="0.05"} 7
"""


def test_the_longest_stall_between_two_looks_is_the_bound_that_holds_all_that_came():
    """Stalls before the first look belong to another attack."""
    before, after = buckets_in(PAGE % (100, 100)), buckets_in(PAGE % (101, 101))
    assert longest_s(before, after) == 2.5
    assert longest_s({}, before) == 0.5
    assert longest_s(after, after) == 0.0


def test_a_stall_beyond_all_bounds_is_without_end():
    """The last bucket loses no value."""
    assert longest_s({}, buckets_in(PAGE % (100, 101))) == float("inf")


def event(offset: int, *what: str) -> dict[str, object]:
    return {
        "what": list(what),
        "when": {"metadata_offset": offset},
        "message": "broker 1 was fenced",
        "because": "its session expired",
    }


def test_a_fencing_since_the_attack_began_is_reported():
    """A broker may be in service again at the time of the question; its history knows."""
    why = {"events": [event(12, "unfenced"), event(11, "fenced"), event(3, "fenced")]}
    assert fencings_in(why, 10) == ["broker 1 was fenced, because its session expired"]
    assert fencings_in(why, 11), "health tells the offset after the newest metadata: the next record has it"
    assert fencings_in(why, 12) == []


TRACE = 'Traceback\n  File "/a/broker/codec.py", line 3, in pack\n    x\nstruct.error: int too large'
CRASH = json.dumps({"event": "request_crashed", "level": "error", "exception": TRACE}, separators=(",", ":"))
WARNING = json.dumps({"event": "request_malformed", "level": "warning"}, separators=(",", ":"))
PLAIN = json.dumps({"event": "snapshot_failed", "level": "error"}, separators=(",", ":"))
FAILED = json.dumps(
    {"directory": "/d", "reason": "File name too long", "event": "log_directory_failed", "level": "error"},
    separators=(",", ":"),
)


def test_a_log_directory_that_failed_is_a_fault():
    """Bytes of a client may cause no failure, even if the node has other directories and goes on."""
    assert unforeseen_in([FAILED, PLAIN]) == ["log directory failed: File name too long"]


def test_an_error_with_a_traceback_is_unforeseen():
    """A refusal is a warning; an error without a traceback was foreseen by the code."""
    assert unforeseen_in([WARNING, PLAIN, CRASH, "not JSON"]) == [
        "request_crashed: struct.error: int too large (codec.py, line 3, in pack)"
    ]


def test_a_log_that_is_gone_has_no_errors(tmp_path: Path):
    """The guard takes a cluster down with its files while the log may be read."""
    assert LogTail(tmp_path / "none.log").unforeseen() == []


def test_a_log_is_read_on_from_where_it_was(tmp_path: Path):
    """Half a line waits for its end."""
    path = tmp_path / "node.log"
    path.write_text(f"{WARNING}\n{CRASH}\n{CRASH[:20]}")
    tail = LogTail(path)
    assert len(tail.unforeseen()) == 1
    assert tail.unforeseen() == []
    with path.open("a") as file:
        file.write(f"{CRASH[20:]}\n")
    assert len(tail.unforeseen()) == 1
