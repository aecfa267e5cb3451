"""The options of the commands whose bodies know nothing of typer: what starts, proves and measures clusters."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", "-J", help="print JSON")]
server = typer.Typer(add_completion=False, rich_markup_mode=None)


@server.command(
    "server",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _server(context: typer.Context) -> None:
    """Run one node; without a config file, alone on port 9092. See raftlog server --help."""
    from raftlog.cli.server import main

    main(context.args)


class Acks(StrEnum):
    """The acknowledgements that a producer waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


def demo(
    *,
    file: Annotated[
        Path | None, typer.Option(help="text to stream, line by line (default: text found here)")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=9, help="nodes to start")] = 3,
    records: Annotated[int, typer.Option(min=1, help="records to send at least")] = 200_000,
    acks: Annotated[
        Acks, typer.Option(help="what producing waits for; only all promises anything")
    ] = Acks.ALL,
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster running until Ctrl-C")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Start a cluster, stream a file through it, kill its nodes meanwhile, and prove that nothing was lost."""
    from raftlog.cli.demo import DemoOptions, run

    options = DemoOptions(file=file, nodes=nodes, records=records, acks=acks.value, keep=keep, json=json)
    raise typer.Exit(run(options))


def bench(
    *,
    only: Annotated[
        str,
        typer.Option(
            help="parts: start, throughput, latency, failover, partitions, groups, rebalance, commits (default: all)"
        ),
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds of each start and each fault")] = 5,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table",
) -> None:
    """Measure a three-node cluster on this machine: start, throughput, latency, failover, many partitions, groups."""
    from raftlog.cli.bench import BenchOptions, run

    if output not in ("table", "json"):
        raise typer.BadParameter("table or json", param_hint="-o")
    parts = [part for part in only.split(",") if part]
    raise typer.Exit(run(BenchOptions(only=parts, rounds=rounds, json=output == "json")))


def chaos(
    cases: Annotated[list[str] | None, typer.Argument(metavar="CASE", help="default: a suite")] = None,
    *,
    suite: Annotated[str, typer.Option(help="ci: nine cases in seven minutes; full: every fault")] = "",
    testbed: Annotated[
        str,
        typer.Option(
            "--testbed",
            "--place",
            help="processes, namespaces, or auto: wherever a case's faults can be injected",
        ),
    ] = "auto",
    minutes: Annotated[
        float, typer.Option(min=0, help="how long to run altogether (default: as long as the cases say)")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option(help="who is hit, when, and by what (default: by chance)")
    ] = None,
    out: Annotated[Path, typer.Option(help="where each run leaves its folder")] = Path("chaos-runs"),
    chaos_dir: Annotated[
        Path | None,
        typer.Option(help="a folder with your own suites/ and testbeds/ (default: those of raftlog)"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="list the cases and where they can run")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit with 5 if this machine can't inject a fault of a case")
    ] = False,
) -> None:
    """Hurt a real cluster while stock clients use it, and judge everything they saw: is anything lost or wrong?"""
    from raftlog.cli.chaos import ChaosOptions, run

    options = ChaosOptions(
        cases=cases or [],
        suite=suite,
        testbed=testbed,
        minutes=minutes,
        seed=seed,
        out=out,
        chaos_dir=chaos_dir,
        listing=listing,
        strict=strict,
    )
    raise typer.Exit(run(options))


def attack(
    *,
    listing: Annotated[bool, typer.Option("--list", help="list the attacks and what each claims")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="only this one (may be repeated)")
    ] = None,
    only_ci: Annotated[bool, typer.Option("--only-ci", help="only those that run in CI")] = False,
    minutes: Annotated[
        float, typer.Option(min=0, help="begin no attack after so long; what is left counts as a failure")
    ] = 60,
    report: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="write a report, .json or .md (may be repeated)")
    ] = None,
    json: Json = False,
) -> None:
    """Attack a cluster of three as strangers could, and judge: does it live, and do honest clients notice?"""
    from raftlog.cli.attack import AttackOptions, run

    options = AttackOptions(
        only=only or [],
        listing=listing,
        only_ci=only_ci,
        minutes=minutes,
        reports=report or [],
        json=json,
    )
    raise typer.Exit(run(options))


def fuzz(
    *,
    frames: Annotated[int, typer.Option(min=1, help="how many to send")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="where all chance comes from")] = 1,
    first: Annotated[
        int, typer.Option(min=0, help="begin at this chunk of 20,000 frames of the seed, if not live")
    ] = 0,
    live: Annotated[
        bool,
        typer.Option("--live/--in-process", help="to a real cluster with bystanders, or within this machine"),
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="processes, if not live")] = 2,
    out: Annotated[Path, typer.Option(help="where frames that found something are kept")] = Path(
        "fuzz-findings"
    ),
    json: Json = False,
) -> None:
    """Send frames of chance, made from Kafka's message schemas, and look for what no bytes may bring about."""
    from raftlog.cli.fuzz import FuzzOptions, run

    raise typer.Exit(run(FuzzOptions(frames, seed, first, live, jobs, out, json)))


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a history; - reads standard input")],
    *,
    json: Json = False,
) -> None:
    """Judge a history of what clients did and saw: lost, doubled, reordered, and all of Jepsen's Kafka anomalies.

    Exit code 0: valid. 1: anomalies that are not allowed. 2: the file can't be understood.

    A history is JSON lines in the order of real time: one when an operation begins (type invoke), one when it ends
    (ok, fail, or info if nobody knows). A key is a topic-partition; a value is sent to a key only once.

    \b
    {"raftlog_history": 1, "allowed": []}
    {"index": 0, "time_ns": 1000, "process": 1, "type": "invoke",
     "f": "send", "value": [["send", "t0-0", 7]]}
    {..., "type": "ok", "f": "send", "value": [["send", "t0-0", [12, 7]]]}
    {..., "type": "invoke", "f": "poll", "value": [["poll"]]}
    {..., "type": "ok", "f": "poll", "value": [["poll", {"t0-0": [[12, 7]]}]]}

    \b
    send       to a key: a value; when it ended, its offset (or null) and value
    poll       when it ended, by key: offsets and values
    txn        several of both
    assign     keys; also subscribe; "seek_to_beginning": true rewinds them
    crash      nothing: the process is gone for good (info)
    """
    from raftlog.cli.check import run

    raise typer.Exit(run(file, json=json))


def sim(
    *,
    seed: Annotated[int | None, typer.Option(min=0, help="replay one seed exactly")] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="first and last seed of a sweep")] = "1..10",
    scenario: Annotated[
        str, typer.Option("--scenario", "--story", help="what to run, see --scenarios; all: each in turn")
    ] = "endurance",
    seconds: Annotated[float, typer.Option(min=0.0, help="length of each storm, virtual seconds")] = 6.0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="processes")] = 1,
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="begin no seed after so many real seconds")
    ] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", "-k", help="do not stop at a failure")] = False,
    log: Annotated[bool, typer.Option("--log", help="with --seed: the nodes' log in virtual time")] = False,
    regressions: Annotated[
        bool, typer.Option("--regressions", help="first the seeds that once found something")
    ] = False,
    scenarios: Annotated[bool, typer.Option("--scenarios", "--stories", help="list the scenarios")] = False,
) -> None:
    """Run whole clusters in virtual time through faults, a world per seed, and explain each seed that fails."""
    from raftlog.cli import sim as body

    raise typer.Exit(
        body.run(
            body.Request(
                seed, seeds, scenario, seconds, jobs, budget, keep_going, log, regressions, scenarios
            )
        )
    )


def version(
    *, json: Annotated[bool, typer.Option("--json", "-J", help="with those of Python and librdkafka")] = False
) -> None:
    """Print the version."""
    from raftlog.cli.version import print_version

    print_version(json=json)


def format_(
    *,
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="RAFTLOG_CONFIG", help="the node's config file")
    ],
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="the same on every node")
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="as kafka-storage has it; here it is so anyway")
    ] = False,
) -> None:
    """Name the cluster in a node's empty data folders. Optional: a first start does it by itself."""
    from raftlog.cli.format import format_folders

    raise typer.Exit(format_folders(config, cluster_id))
