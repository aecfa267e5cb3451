"""The page about what differs from Kafka is made of the list of differences."""

from __future__ import annotations

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known import load
from raftlog_chaos.conformance.page import page
from tests.house.source import ROOT

PAGE = ROOT / "docs" / "pages" / "explanation" / "kafka.md"


def test_the_page_is_what_the_list_makes() -> None:
    """`python -m raftlog_chaos.conformance page` prints it, and `make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page(load())


def test_an_entry_is_on_the_page_and_a_fault_that_is_open_is_not() -> None:
    """A sentence stands there once, however many histories show the difference."""
    added = [
        Known("by design", "Logs are green."),
        Known("by design", "Logs are green.", "a/*"),
        Known("open", "Red."),
    ]
    text = page([*load(), *added])
    assert text.count("- Logs are green.") == 1
    assert "Red." not in text
