"""`deploy/examples`: programs of FastStream, Quix Streams and PyFlink, with tests that kill them and a leader."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT

INSTALLED = ROOT / "build" / "frameworks"
"""Environments that `make frameworks-test` makes: the packages of the frameworks want other versions than ours."""
JAR = INSTALLED / "flink-sql-connector-kafka.jar"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("example", "environment"), [("faststream", "python"), ("quix", "python"), ("flink", "flink")]
)
def test_an_example_passes_as_users_run_it(example: str, environment: str, tmp_path: Path) -> None:
    """Its own tests, in a copy of its folder."""
    python = INSTALLED / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{example} is not installed: make frameworks-test")
    shutil.copytree(ROOT / "deploy" / "examples" / example, tmp_path / example)
    ended = subprocess.run(
        [python, "-m", "pytest", "-q"],
        cwd=tmp_path / example,
        env={**os.environ, "FLINK_KAFKA_JAR": str(JAR)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "1 passed" in ended.stdout, ended.stdout[-8000:] + ended.stderr[-2000:]
