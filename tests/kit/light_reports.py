"""What a worker of pytest-xdist sends to the process that prints: no more than is printed.

Each test has three reports (setup, call, teardown), and each report has the captured output and all keywords. For the
thousands of tests that pass in a millisecond, sending this took both processes longer than the tests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest

LONG_S: Final = 1.0
"""A setup or teardown that takes so long is printed among the slowest, see --durations-min."""


class LightReports:
    """The plugin, for a worker."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self, config: pytest.Config, report: Any) -> Generator[None, Any, Any]:
        data = yield
        if report.passed and not {*config.option.reportchars} & {"P", "A"}:
            data["keywords"], data["sections"] = {}, []
        return data


def is_start_printed(config: pytest.Config) -> bool:
    """Return whether the start of a test has to leave its process: its name is printed with -v."""
    return not hasattr(config, "workerinput") or config.option.verbose > 0


def is_printed(config: pytest.Config, report: pytest.TestReport) -> bool:
    """Return whether a report has to leave its process: not a setup or teardown that passed, and was quick."""
    return (
        not hasattr(config, "workerinput")
        or report.when == "call"
        or not report.passed
        or report.duration >= LONG_S
    )
