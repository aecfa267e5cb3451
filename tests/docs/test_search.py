"""Claims about the search of the site: a guide is found before decisions and references that share its words.

The search ranks by titles first (a thousand times the weight of text), each page by its boost. The tests read both from
the sources, so they need neither the built site nor its scripts.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from tests.house.source import ROOT

PAGES = ROOT / "docs" / "pages"
TITLE = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def separator() -> re.Pattern[str]:
    """Return what ends a word of the index, from the site's settings."""
    (found,) = re.findall(r"^ +separator: '(.+)'$", (ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE)
    return re.compile(found)


@cache
def hooks() -> Any:
    """Return the module of the site's hooks, which is in no package."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs/hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def boost_of(name: str) -> float:
    """Return the boost that a page gets from the hook."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri=name), meta={})
    hooks().on_page_markdown("", page, None, None)
    boost: float = page.meta.get("search", {}).get("boost", 1)
    return boost


def words_of(text: str) -> set[str]:
    return {each.lower() for each in separator().split(text) if each}


def first_page(query: str) -> str:
    """Return the page with the highest boost among those with a title that has all words of the query."""
    found = {}
    for path in PAGES.rglob("*.md"):
        name = path.relative_to(PAGES).as_posix()
        titles = TITLE.findall(FENCES.sub("", path.read_text(encoding="utf-8")))
        for depth, title in enumerate(titles):
            if all(any(word.startswith(each) for word in words_of(title)) for each in words_of(query)):
                found[name] = max(found.get(name, (0, False)), (boost_of(name), depth == 0))
    return max(found, key=lambda name: found[name])


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("dead letter", "howto/queues.md"),
        ("kafka-python", "howto/clients.md"),
        ("avro", "howto/schemas.md"),
        ("ACL", "howto/security.md"),
        ("offset reset", "howto/groups.md"),
        ("TLS", "howto/tls.md"),
        ("schema registry", "howto/schemas.md"),
    ],
)
def test_guide_is_found_first(query: str, page: str) -> None:
    """By what a newcomer types."""
    assert first_page(query) == page


def test_guides_weigh_more_than_decisions() -> None:
    """A decision assumes that its reader knows the feature."""
    order = ["howto/tls.md", "tutorial/index.md", "reference/metrics.md", "explanation/decisions/tables.md"]
    assert sorted(order, key=boost_of, reverse=True) == order


def test_word_in_parentheses_is_a_word_of_the_index() -> None:
    """Titles have such words: access control (ACLs)."""
    assert words_of('access (ACLs), "avro"; retention.ms') == {"access", "acls", "avro", "retention", "ms"}
