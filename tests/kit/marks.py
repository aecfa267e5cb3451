"""Shorthands for marks on parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def nightly(*each: Any, id: str | None = None) -> Any:
    """Return a set of parameters that only `make nightly` runs; the others of its test are the taste."""
    return pytest.param(*each, marks=pytest.mark.nightly, id=id)


def taste(chosen: Iterable[Any], among: Iterable[Any]) -> list[Any]:
    """Return all parameters. Parameters that were not chosen are marked for `make nightly`."""
    kept = list(chosen)
    return [each if each in kept else nightly(each) for each in among]
