"""The rows of all APIs, and a way to serve one otherwise in a test."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from raftlog.broker.api import Api
from raftlog.broker.handlers import OF_CONTROLLERS, find_api, served
from raftlog.protocol.apis import APIS


def all_rows() -> dict[int, Api]:
    """Return the rows of the APIs that are served, by key."""
    return {key: row_of(key) for key in sorted(served() | OF_CONTROLLERS)}


def row_of(api_key: int) -> Api:
    """Return the row of an API that is served."""
    row = find_api(api_key, of_controllers=api_key in OF_CONTROLLERS)
    assert row is not None
    return row


def change_row(monkeypatch: pytest.MonkeyPatch, api_key: int, **fields: Any) -> None:
    """Serve an API with other fields in its row."""
    module: ModuleType = import_module(f"raftlog.broker.handlers.{APIS[api_key].name}")
    monkeypatch.setattr(module, "API", replace(row_of(api_key), **fields))
