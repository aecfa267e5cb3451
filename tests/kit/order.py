"""The order in which processes of pytest-xdist take modules, and the lifetime of a cluster that modules share.

Modules that wait for real nodes come first: they are long and leave the processor to others. The many short modules of
unit tests then fill up the rest evenly. Modules that share a cluster run in a row. The cluster ends before the first
module without a test that uses it: three idle nodes cost some hundredths of a processor in each process.

--reversed reverses the tests within each module (`make reversed`). A test that needs what an earlier test left fails
then. It would fail when it is run alone, too, or run again after a failure (tests/kit/again.py).
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

SHARED = "shared_cluster"
"""The fixture of a cluster that folders share, or the modules of one folder; it is of the session."""

TOGETHER = ("tests/admin/", "tests/clients/failover/", "tests/house/")
"""Folders with modules that run in one process, to share a cluster or the syntax trees of all files."""


def add_option(parser: pytest.Parser) -> None:
    """Add --reversed to the command line."""
    parser.addoption("--reversed", action="store_true", help="run the tests of each module in reverse order")


class LongestFirst:
    """The plugin."""

    def __init__(self) -> None:
        self._clusters: dict[Path, Any] = {}
        """The definition of the shared cluster that tests of a module use."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadFileScheduling

        class Scheduling(LoadFileScheduling):
            def _split_scope(self, nodeid: str) -> str:
                folder = next((each for each in TOGETHER if nodeid.startswith(each)), None)
                return folder or super()._split_scope(nodeid)

        return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            cluster = _shared_cluster_of(item)
            if cluster is not None:
                self._clusters[item.path] = cluster
        if config.getoption("--reversed"):
            modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
            items[:] = [item for tests in modules for item in reversed(tests)]
        if hasattr(config, "workerinput"):
            with_nodes = {item.path for item in items if _is_of_nodes(item)}
            items.sort(key=lambda item: (item.path not in self._clusters, item.path not in with_nodes))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        try:
            return (yield)
        finally:
            cluster = self._clusters.get(item.path)
            if cluster is not None and (nextitem is None or self._clusters.get(nextitem.path) is not cluster):
                cluster.finish(item._request)  # type: ignore[attr-defined]


def _is_of_nodes(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("clients") is not None or any(
        each.endswith("cluster") for each in fixtures
    )


def _shared_cluster_of(item: pytest.Item) -> Any:
    """Return the definition of the shared cluster's fixture, the folder's own first. None: the test does not use it."""
    used = getattr(item, "_fixtureinfo", None)
    return None if used is None else next(reversed(used.name2fixturedefs.get(SHARED, ())), None)
