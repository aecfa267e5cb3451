"""The controllers of most tests. The mark `brokers` of a module or a test says what they begin with."""

from __future__ import annotations

import pytest

from tests.controller.controller_cluster import ControllerCluster, started


@pytest.fixture
def controllers(request: pytest.FixtureRequest) -> ControllerCluster:
    """One controller and the brokers 1, 2 and 3, in service, or what the mark `brokers` passes to `started`."""
    mark = request.node.get_closest_marker("brokers")
    return started(1, 2, 3) if mark is None else started(*mark.args, **mark.kwargs)
