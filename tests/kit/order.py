"""The order in which processes of pytest-xdist take modules: those whose tests wait for real nodes come first.

They are long and leave the processor to others, so the many short ones of units fill up the rest evenly.
"""

from __future__ import annotations

import pytest


class LongestFirst:
    """The plugin."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            with_nodes = {item.path for item in items if _is_of_nodes(item)}
            items.sort(key=lambda item: item.path not in with_nodes)


def _is_of_nodes(item: pytest.Item) -> bool:
    return item.get_closest_marker("clients") is not None or "cluster" in getattr(item, "fixturenames", ())
