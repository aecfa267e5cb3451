"""Points and lengths of time on a command line, numbers of bytes, and tables."""

from __future__ import annotations

import json

import pytest

from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, in_bytes, print_object, print_rows
from raftlog.cli.timestamps import read_duration_ms, read_moment


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_moment_is_milliseconds_or_iso_8601(text: str, moment_ms: int) -> None:
    """Without a zone it is UTC, on every machine."""
    assert read_moment("--time", text) == moment_ms


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("PT15M", 900_000), ("PT0.5S", 500), ("P1DT2H", 93_600_000), ("p1d", 86_400_000)],
)
def test_a_duration_is_iso_8601(text: str, length_ms: int) -> None:
    """As kafka-consumer-groups has it."""
    assert read_duration_ms("--by-duration", text) == length_ms


@pytest.mark.parametrize("text", ["", "PT", "P", "2h", "yesterday"])
def test_nonsense_is_refused_with_an_example(text: str) -> None:
    """And the option is named."""
    with pytest.raises(Failure, match=r"--by-duration .*PT2H"):
        read_duration_ms("--by-duration", text)
    with pytest.raises(Failure, match=r"--time .*2026-01-31"):
        read_moment("--time", text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (79_624_343_552, "79.6 GB"),
        (10**15, "1e+03 TB"),
        (-1, "-"),
        (None, "-"),
    ],
)
def test_bytes_are_printed_with_a_unit(count: int | None, text: str) -> None:
    """Three digits are enough for people."""
    assert in_bytes(count) == text


def test_rows_are_a_table_a_list_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers to the right, what is not there as a dash; JSON has all fields as they are."""
    rows = [
        {"name": "long name", "n": 5, "ids": [1, 2], "on": True},
        {"name": "b", "n": 10, "ids": [], "on": None},
    ]
    print_rows(rows, Form.TABLE, ("name", "n", "ids"))
    assert capsys.readouterr().out == "name        n  ids\nlong name   5  1,2\nb          10  -\n"
    print_rows(rows, Form.JSON)
    assert json.loads(capsys.readouterr().out) == rows
    print_rows(rows, Form.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    print_rows([], Form.TABLE, ("name", "n"))
    assert capsys.readouterr().out == "name  n\n"
    print_object({"a_b": 1, "c": None}, Form.TABLE)
    assert capsys.readouterr().out == "a b  1\nc    -\n"
