"""A pytest plugin that plants a bug for a whole run: `python -m pytest -p tests.planted.planting --plant NAME TESTS`.

`make planted` runs so the tests of plants that few seeds show. With other tests it shows which of them see a plant.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.planted.plant import all_plants


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --plant."""
    parser.addoption("--plant", choices=list(all_plants()), help="a bug to run the tests with")


@pytest.fixture(scope="session", autouse=True)
def planted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug before the first test."""
    name = request.config.getoption("--plant")
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            all_plants()[name].plant(patch)
        yield
