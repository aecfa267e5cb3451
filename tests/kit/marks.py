"""Shorthands for marks on parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


class Selection:
    """What the command line selects, as far as it is known before tests are collected."""

    has_nightly = True


def note_selection(config: pytest.Config) -> None:
    """Note whether the tests for `make nightly` are left out: thousands of cases are then not even made."""
    Selection.has_nightly = "not nightly" not in config.option.markexpr


def nightly(*each: Any, id: str | None = None) -> Any:
    """Return a set of parameters that only `make nightly` runs; the others of its test are the taste."""
    return pytest.param(*each, marks=pytest.mark.nightly, id=id)


def taste(chosen: Iterable[Any], among: Iterable[Any]) -> list[Any]:
    """Return all parameters. Parameters that were not chosen are marked for `make nightly`."""
    kept = list(chosen)
    return [
        each if each in kept else nightly(each) for each in among if Selection.has_nightly or each in kept
    ]
