"""A pytest plugin that runs each test that is a coroutine on an event loop of its own.

pytest-asyncio does that, too, with loops of any scope and fixtures of any kind. That takes a test more time than all
else that pytest does for it, and thousands of tests are shorter.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest


class Coroutines:
    """The plugin. A fixture of a function may be a coroutine as well: it is awaited on the test's loop."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        if inspect.iscoroutinefunction(fixturedef.func):
            fixturedef.func = _not_awaited(fixturedef.func)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

        async def run() -> None:
            for name, value in arguments.items():
                if inspect.iscoroutine(value):
                    arguments[name] = await value
            await pyfuncitem.obj(**arguments)

        with asyncio.Runner() as runner:
            runner.run(run())
        return True


def _not_awaited(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that returns the coroutine; pytest itself refuses a fixture that is one."""

    def call(**given: Any) -> Any:
        return make(**given)

    return call
