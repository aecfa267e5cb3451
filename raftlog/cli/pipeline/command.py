"""`raftlog pipeline JOB`: the options of each job, made from the job's own table. Bodies are imported when called."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from raftlog.cli import exits
from raftlog.pipeline.jobs.aggregate import AggregateOptions
from raftlog.pipeline.jobs.archive import ArchiveOptions
from raftlog.pipeline.jobs.audit import AuditOptions
from raftlog.pipeline.jobs.lake import TableOptions
from raftlog.pipeline.jobs.mirror import MirrorOptions
from raftlog.pipeline.jobs.settings import REQUIRED, Row, rows

pipeline = typer.Typer(
    no_args_is_help=True,
    help="PySpark jobs between a cluster and its tables: each continues from its checkpoint after a restart.",
)


def _add(job: str, options: type, doc: str) -> None:
    """Add a command with the rows of a job's table as flags."""

    def command(**flags: Any) -> None:
        from raftlog.cli.pipeline import run as pipeline_run

        config, json = flags.pop("config"), flags.pop("json")
        files = {name: flags.pop(name, None) for name in pipeline_run.LOGIN_FILES}
        raise typer.Exit(pipeline_run.run(job, pipeline_run.Asked(config, flags, json, files)))

    own: list[tuple[str, Any, Any]] = [
        ("config", Path | None, typer.Option("--config", "-c", help="TOML file of these options; flags win")),
        ("json", bool, typer.Option("--json", "-J", help="print the summary as JSON")),
        (
            "command_config",
            Path | None,
            typer.Option("-F", "--command-config", help="settings of the client and its login, one per line"),
        ),
    ]
    if options is MirrorOptions:
        target = typer.Option("--to-command-config", help="the same for the target's client")
        own.append(("to_command_config", Path | None, target))
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind, flag],
        )
        for name, kind, flag in own
    ]
    parameters += [_parameter(row) for row in rows(options)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = doc
    pipeline.command(job)(command)


def _parameter(row: Row) -> inspect.Parameter:
    one: Any = row.kind
    kind: Any = list[one] | None if row.many else one | None
    names = [f"{row.flag}/--no-{row.flag[2:]}"] if row.kind is bool else [row.flag, *_SHORT.get(row.name, ())]
    flag = typer.Option(*names, help=_help(row), show_default=False)
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, flag]
    )


_SHORT = {"bootstrap": ("-b",), "topics": ("-t",), "client": ("-X",)}


def _help(row: Row) -> str:
    parts = [row.doc]
    if row.default is REQUIRED:
        parts.append("[required]")
    elif row.default not in ("", ()):
        parts.append(f"[default: {row.default}]")
    return " ".join(parts)


_ENDS = """

    Exit codes: 0 done, or stopped by SIGTERM after its batch; 130 stopped by SIGINT after its batch, or at once at the
    second; 1 failed; 2 wrong options; 5 Java, PySpark or a jar is missing."""

_add(
    "archive",
    ArchiveOptions,
    "Archive topics as Parquet, by topic and date: one copy of each record, whatever is killed meanwhile."
    + _ENDS,
)

_add(
    "aggregate",
    AggregateOptions,
    "Aggregate JSON records by event-time window into a topic or Parquet; late and malformed records are counted."
    + _ENDS,
)

_add(
    "table",
    TableOptions,
    "Append topics to a Delta or Iceberg table, values as columns by a schema registry, each record once."
    + _ENDS,
)

_add(
    "mirror",
    MirrorOptions,
    "Copy topics to another cluster, partition by partition, with a map of the offsets." + _ENDS,
)

_add(
    "audit",
    AuditOptions,
    "Read whole topics in parallel and judge them: gaps, repeats, doubles, order by key, checksums. Exit code 8: wrong."
    + _ENDS,
)


@pipeline.command()
def demo(
    *,
    trips: Annotated[int, typer.Option(min=1_000, help="trips to make")] = 60_000,
    seed: Annotated[int, typer.Option(help="which trips")] = 1,
    connector: Annotated[str, typer.Option(help="raftlog or kafka")] = "raftlog",
    master: Annotated[str, typer.Option(help="Spark's master")] = "local[2]",
    json: Annotated[bool, typer.Option("--json", "-J", help="print the report as JSON")] = False,
) -> None:
    """Stream taxi trips through three nodes and two jobs while a leader dies, and check every count and sum.

    Exit code 8 if anything is missing, double or wrong; 5 if Java or PySpark is missing.
    """
    from raftlog.cli.pipeline.demo import DemoOptions, run

    raise typer.Exit(run(DemoOptions(trips=trips, seed=seed, connector=connector, master=master, json=json)))


@pipeline.command()
def jars() -> None:
    """Fetch the jars of Spark's own Kafka connector with Maven, for --connector kafka, and print where they are."""
    from raftlog.pipeline.jobs.jars import JarsMissingError, fetch_jars

    try:
        print(*fetch_jars(), sep="\n")
    except JarsMissingError as error:
        print(f"raftlog: {error}", file=sys.stderr)
        raise typer.Exit(exits.NOT_RUN) from None
