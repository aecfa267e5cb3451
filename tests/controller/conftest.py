"""The controllers of most tests; tests that need another start have a fixture of the same name."""

from __future__ import annotations

import pytest

from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def cluster() -> ControllerCluster:
    """One controller and the brokers 1, 2 and 3, in service."""
    made = ControllerCluster()
    made.start(1, 2, 3)
    return made
