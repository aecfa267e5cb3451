"""A pytest plugin: a test of real nodes that fails is run once more. If it passes then, it is reported as FLAKY.

A test has real nodes if it, or a fixture that it uses, started a process that is a node or starts nodes. Unit tests and
simulations give the same result each time, and are never run again. The second run gets new fixtures of every scope.
The first failure is printed in full at the end, so that it can be mended. A fixture that fails when it is taken down
(nodes that logged errors, say) fails the run: it judges several tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_timeout
from _pytest.runner import runtestprotocol

from raftlog.testing.forked_process import ForkedProcess, ForkServer
from raftlog.testing.progress import patient
from tests.kit.light_reports import is_printed, is_start_printed

FLAKY: Final = "flaky"
NODES: Final = frozenset({"server", "dev", "demo", "chaos", "bench", "pipeline", "attack", "fuzz"})
"""Sub-commands that are nodes, or start some."""


def starts_nodes(command: Any) -> bool:
    """Whether a command is a node of raftlog, starts nodes, or asks an engine for containers."""
    words = command.split() if isinstance(command, str) else [os.fsdecode(each) for each in _words(command)]
    if words and Path(words[0]).name == "docker":
        return True
    return any(Path(word).name == "raftlog" and following in NODES for word, following in pairwise(words))


def _words(command: Any) -> Sequence[Any]:
    return command if isinstance(command, list | tuple) else [command]


class Again:
    """The plugin. It looks at the command of each process that is started, to note the tests that start nodes.

    Nodes that are forked are noted, too.
    """

    def __init__(self) -> None:
        self._started = 0
        self._with_nodes: set[Any] = set()
        """Definitions of fixtures."""
        self._first_failure = ""
        """Of the test that runs again at the moment."""
        plain, fork = subprocess.Popen.__init__, ForkServer.start

        def noted(process: Any, args: Any, *others: Any, **options: Any) -> None:
            self._started += starts_nodes(args)
            plain(process, args, *others, **options)

        def noted_fork(server: ForkServer, *how: Any) -> ForkedProcess:
            self._started += 1
            return fork(server, *how)

        subprocess.Popen.__init__ = noted  # type: ignore[method-assign, assignment]
        ForkServer.start = noted_fork  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        before = self._started
        try:
            return (yield)
        finally:
            if self._started > before:
                self._with_nodes.add(fixturedef)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        if is_start_printed(item.config):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        before = self._started
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [each for each in reports if each.failed]
        if failed and failed[0].when != "teardown" and self._has_nodes(item, before):
            reports = self._again(item, nextitem, reports, failed[0])
        for each in reports:
            if is_printed(item.config, each):
                item.ihook.pytest_runtest_logreport(report=each)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _has_nodes(self, item: pytest.Item, before: int) -> bool:
        used = getattr(item, "_fixtureinfo", None)
        definitions = used.name2fixturedefs.values() if used is not None else ()
        return self._started > before or any(
            each in self._with_nodes for several in definitions for each in several
        )

    def _again(
        self,
        item: pytest.Item,
        nextitem: pytest.Item | None,
        reports: list[pytest.TestReport],
        failed: pytest.TestReport,
    ) -> list[pytest.TestReport]:
        """Run a test once more. Return the first reports if it fails again."""
        told = failed.longreprtext
        try:
            item.session._setupstate.teardown_exact(None)
        except Exception as error:
            told += f"\nand when its fixtures were taken down: {error!r}"
        settings = pytest_timeout._get_item_settings(item)
        if settings.timeout:
            item.ihook.pytest_timeout_cancel_timer(item=item)
            item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
        self._first_failure = f"{item.nodeid} failed at first:\n{told}"
        second = runtestprotocol(item, log=False, nextitem=nextitem)
        self._first_failure = ""
        if any(each.failed for each in second):
            return reports
        for each in second:
            if each.when == "call":
                each.user_properties.append((FLAKY, told))
        return second

    # --- reporting

    def pytest_keyboard_interrupt(self) -> None:
        """Print the first failure of a test that is interrupted as it runs again."""
        if self._first_failure:
            print(self._first_failure, file=sys.__stderr__)

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        if report.when == "call" and report.passed and _failure_text(report) is not None:
            return FLAKY, "F", ("FLAKY", {"yellow": True})
        return None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        flaky = terminalreporter.stats.get(FLAKY, [])
        if not flaky:
            return
        terminalreporter.section("failed at first, passed when run again")
        for each in flaky:
            terminalreporter.write_line(_failure_text(each) or "")
            terminalreporter.write_line("")
        for each in flaky:
            terminalreporter.write_line(f"FLAKY {each.nodeid}", yellow=True)


def _failure_text(report: Any) -> str | None:
    """Return what a test that is flaky failed with at first."""
    return next((text for name, text in report.user_properties if name == FLAKY), None)


def stretch_timeout(config: pytest.Config) -> None:
    """Multiply the time limit of a test by RAFTLOG_PATIENCE, unless the command line sets a limit."""
    if config.option.timeout is None:
        config.option.timeout = patient(float(config.getini("timeout")))
