"""`raftlog pipeline JOB`: the options of each job. Bodies are imported when called, and pyspark with them."""

from __future__ import annotations

import sys

import typer

from raftlog.cli import exits

pipeline = typer.Typer(no_args_is_help=True, help="PySpark jobs between a cluster and its tables.")


@pipeline.callback()
def _pipeline() -> None:
    """PySpark jobs between a cluster and its tables."""


@pipeline.command()
def jars() -> None:
    """Fetch the jars of Spark's own Kafka connector with Maven, for --connector kafka, and print where they are."""
    from raftlog.pipeline.jobs.jars import JarsMissingError, fetch_jars

    try:
        print(*fetch_jars(), sep="\n")
    except JarsMissingError as error:
        print(f"raftlog: {error}", file=sys.stderr)
        raise typer.Exit(exits.NOT_RUN) from None
