"""A Spark session for a job on the command line; other callers pass their own session instead."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raftlog.pipeline.jobs.common import SourceOptions, pairs
from raftlog.pipeline.jobs.control import JobError, MissingError
from raftlog.pipeline.jobs.jars import find_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_JAVA: Final = (
    "Spark needs a Java runtime, 17 or newer, and there is no java here "
    "(Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
)
QUIET: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|ssl[.]key",
}
"""Defaults, which --conf overrides. Spark's 200 shuffle partitions cost a small stream seconds per batch."""


def make_session(options: SourceOptions, job: str) -> SparkSession:
    """Start Spark, or take the running session. Raises JobError when a piece is missing on this machine."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        how = "pip install '.[spark]' in a checkout"
        raise MissingError(f"PySpark is not installed ({error}): {how}") from None
    if not java():
        raise MissingError(NO_JAVA)
    # executors on this machine must find this very raftlog, even if it runs from its folder
    package = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"raftlog-{job}")
    if options.master:
        builder = builder.master(options.master)
    conf = {**QUIET, **_jars(options), **pairs(options.conf)}
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # whatever Java says; py4j has no narrower type
        raise JobError(f"Spark does not start: {str(error).splitlines()[0]}") from error
    if options.connector == "raftlog":
        from raftlog.pipeline import register

        register(spark)
    return spark


def java() -> str | None:
    """Return the Java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")


def _jars(options: SourceOptions) -> dict[str, str]:
    return {"spark.jars": ",".join(map(str, find_jars()))} if options.connector == "kafka" else {}
