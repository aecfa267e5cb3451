"""What holds for all tests: generated ones are the same in each run, no clock fails them, and signals mean what they
mean on a terminal.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

_TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("raftlog", derandomize=True, **_TOO_SLOW)
settings.register_profile("explore", **_TOO_SLOW)
"""New examples in each run: `make test TEST="--hypothesis-profile explore"`."""
settings.load_profile("raftlog")


def pytest_configure() -> None:
    """Who runs the tests in the background ignores these signals, and the nodes that tests start would inherit that."""
    for each, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, default)
