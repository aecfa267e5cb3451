"""Tables for people: what is too long for the terminal, and numbers with units."""

from __future__ import annotations

import json

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.move_throttle import read_rate
from raftlog.cli.rows import Form, print_object, print_rows, print_table

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
    """There are no rows to fold."""
    print_table([], COLUMNS, width=80)
    assert capsys.readouterr().out == "name  source  value\n"


def test_what_clients_named_themselves_cannot_command_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes for what is no visible character, lists included; JSON and what people write stay as they are."""
    rows = [{"group": "\x1b[2Jgone\nline", "members": ["\x07é", "日本 語"]}]
    print_rows(rows, Form.TABLE)
    print_object(rows[0], Form.TABLE)
    told = capsys.readouterr().out
    assert told.count(r"\x1b[2Jgone\nline") == 2 and told.count(r"\x07é,日本 語") == 2
    assert all(each.isprintable() for line in told.splitlines() for each in line)
    print_rows(rows, Form.JSON)
    assert json.loads(capsys.readouterr().out) == rows


def test_one_long_cell_is_whole_and_widens_no_other_row(capsys: pytest.CaptureFixture[str]) -> None:
    """A group id may have hundreds of characters."""
    print_table(
        [{"group": "g" * 300, "state": "empty"}, {"group": "short", "state": "stable"}], ("group", "state")
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["group  state", "g" * 300 + "  empty", "short  stable"]


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
    with pytest.raises(Failure, match=r"--throttle .*bytes per second") as caught:
        read_rate(text)
    assert caught.value.code == exits.USAGE
