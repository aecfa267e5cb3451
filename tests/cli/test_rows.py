"""Tables for people: what is too long for the terminal, and numbers with units."""

from __future__ import annotations

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.move_throttle import read_rate
from raftlog.cli.rows import print_table

COLUMNS = ("name", "source", "value")
LONG = ",".join(f"listener-{each}:PLAINTEXT" for each in range(9))
ROWS = [
    {"name": "short", "source": "file", "value": "1"},
    {"name": "listeners", "source": "default", "value": LONG},
    {"name": "path", "source": "file", "value": "x" * 200},
]


def test_long_value_stands_below_its_name_and_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """80 columns suffice; lists break behind a comma; the columns of others are as if it were not there."""
    print_table(ROWS, COLUMNS, width=80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1:3] == ["short      file     1", "listeners  default"]
    below = [line.strip() for line in lines[3 : lines.index("path       file")]]
    assert "".join(below) == LONG
    assert all(each.endswith(",") for each in below[:-1])
    assert "".join(line.strip() for line in lines[lines.index("path       file") + 1 :]) == "x" * 200


def test_table_that_no_terminal_shows_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    """grep finds a value beside its name."""
    print_table(ROWS, COLUMNS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert lines[2] == f"listeners  default  {LONG}"


def test_table_without_rows_is_its_heading_at_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to fold."""
    print_table([], COLUMNS, width=80)
    assert capsys.readouterr().out == "name  source  value\n"


@pytest.mark.parametrize(
    ("text", "rate"), [("500", 500), ("10MB", 10_000_000), ("3 kB", 3000), ("2gb/s", 2 * 10**9), ("1B", 1)]
)
def test_rate_is_read_with_its_unit(text: str, rate: int) -> None:
    """Bytes a second, by thousands, as tables print them."""
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5MB", "10Mbit", "fast", "", "9223372036854775808", "99999999GB" * 2]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    """The line names the flag and what would be right."""
    with pytest.raises(Failure, match=r"--throttle .*bytes a second") as caught:
        read_rate(text)
    assert caught.value.code == exits.USAGE
