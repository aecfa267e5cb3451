"""Spark's errors when a query fails, and what a person needs of its long messages."""

from __future__ import annotations

from typing import Final

from raftlog.pipeline.jobs.control import JobError

TOLD_LINES: Final = 3
NOISE: Final = "An error occurred while calling"


def spark_errors() -> tuple[type[Exception], ...]:
    """Return what a query may raise: what PySpark has a class for, and what comes through from Java as it is."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError)


def job_error(error: BaseException) -> JobError:
    """Return an error as one line: how it begins, and the last cause."""
    if isinstance(error, JobError):
        return error
    lines = [line.strip(" :\t") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(NOISE)]
    causes = [line for line in lines[TOLD_LINES:] if "Caused by" in line or line.startswith("raftlog")]
    return JobError(" | ".join([*lines[:TOLD_LINES], *causes[-1:]]) or type(error).__name__)
