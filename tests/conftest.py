"""The settings of all tests: examples are the same in each run, no deadline fails them, and signals have their usual
effect.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from raftlog.base import import_without
from tests.kit import in_memory, order
from tests.kit.again import Again, stretch_timeout
from tests.kit.byte_code import CompiledOnce
from tests.kit.coroutines import Coroutines
from tests.kit.examples import leave_constants_out
from tests.kit.garbage import Spared
from tests.kit.light_reports import LightReports
from tests.kit.marks import note_selection
from tests.kit.order import LongestFirst

import_without("rich", "structlog")
"""As a node does it: rich would take 16 ms for each traceback in the log of a test."""

_TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("raftlog", derandomize=True, max_examples=25, **_TOO_SLOW)
settings.register_profile("nightly", derandomize=True, max_examples=100, **_TOO_SLOW)
"""Four times as many examples; see tests/kit/examples.py."""
settings.register_profile("explore", max_examples=100, **_TOO_SLOW)
"""New examples in each run: `make test TEST="--hypothesis-profile explore"`."""
settings.load_profile("raftlog")

pytest_plugins = ["tests.kit.clusters"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of our plugins."""
    order.add_option(parser)
    in_memory.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Run tests of nodes that fail once more, and give a test as much time as RAFTLOG_PATIENCE says.

    Also, a shell that runs the tests in the background ignores these signals, and the nodes would inherit that.
    """
    config.pluginmanager.register(Again())
    config.pluginmanager.register(CompiledOnce())
    config.pluginmanager.register(Coroutines())
    config.pluginmanager.register(LongestFirst())
    config.pluginmanager.register(LightReports())
    config.pluginmanager.register(Spared())
    if config.getoption("--hypothesis-profile", None) is None:
        leave_constants_out()
    in_memory.keep_folders_in_memory(config)
    stretch_timeout(config)
    note_selection(config)
    for each, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, default)
