"""The page about what differs from Kafka is made of the list of differences."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import combinations

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known import load, load_by_subject
from raftlog_chaos.conformance.page import page
from tests.house.source import ROOT

NEARLY = 0.85
"""Of all letters in common, in their order."""
PAGE = ROOT / "docs" / "pages" / "explanation" / "kafka.md"


def test_the_page_is_what_the_list_makes() -> None:
    """`python -m raftlog_chaos.conformance page` prints it, and `make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page(load_by_subject())


def test_an_entry_is_on_the_page_and_a_fault_that_is_open_is_not() -> None:
    """A sentence stands there once, however many histories show the difference."""
    added = [
        Known("by design", "Logs are green."),
        Known("by design", "Logs are green.", "a/*"),
        Known("open", "Red."),
    ]
    text = page({"Logs": added, "More logs": added})
    assert text.count("- Logs are green.") == 1
    assert text.count("### ") == 1
    assert "Red." not in text


def test_no_two_sentences_say_nearly_the_same() -> None:
    """Entries about one difference share their text: the page said it twice, in other words."""
    sentences = [*dict.fromkeys(each.why for each in load())]
    twins = [(one, other) for one, other in combinations(sentences, 2) if _are_alike(one, other)]
    assert not twins


def _are_alike(one: str, other: str) -> bool:
    compared = SequenceMatcher(None, one, other)
    bounds = (compared.real_quick_ratio, compared.quick_ratio, compared.ratio)
    return all(bound() > NEARLY for bound in bounds)
