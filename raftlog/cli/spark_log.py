"""The file for Java's standard error while a job runs, so that progress stays readable and no output is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


class SparkLog:
    """A file for what Spark says. Java inherits standard error when it is started, and keeps it."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="raftlog-spark-", suffix=".log")
        os.close(descriptor)
        self.path = Path(name)
        # PySpark's own report of an exception that is reported anyway
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)

    @contextlib.contextmanager
    def inherited(self) -> Iterator[None]:
        """Let processes that are started meanwhile write their standard error to the file."""
        sys.stderr.flush()
        own = os.dup(2)
        target = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.dup2(target, 2)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(own, 2)
            os.close(own)
            os.close(target)

    def drop(self) -> None:
        """Remove the file: all went well."""
        self.path.unlink(missing_ok=True)
