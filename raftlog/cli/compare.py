"""`raftlog compare`: raftlog beside Apache Kafka, NATS JetStream, Redis Streams, RabbitMQ and the machine itself.

A folder keeps the figures (`compare.json`) and a page with pictures. A system that this machine lacks is reported as
missing. The exit code is 0 as long as raftlog itself was measured.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from raftlog.base.disk import make_folders, write_file
from raftlog.cli import exits
from raftlog.cli.chaos_screen import print_table
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.librdkafka import confluent_kafka
from raftlog_chaos.compare import page, table
from raftlog_chaos.compare.figures import SUBJECT, Comparison, Described
from raftlog_chaos.compare.loads import file_system_of
from raftlog_chaos.compare.parts.bench import Scale
from raftlog_chaos.compare.registry import PARTS, SYSTEMS
from raftlog_chaos.compare.run import Plan, Run
from raftlog_chaos.compare.systems.system import Missing

SHORT_SECONDS: Final = 1.0
GIGABYTE: Final = 1_000_000_000
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
DISK: Final = "the disk"
"""The name for a note on the data's file system."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The options of the command line."""

    only: Annotated[str, typer.Option(help=f"parts: {', '.join(PARTS)} (default: all)")] = ""
    systems: Annotated[str, typer.Option(help=f"systems: {', '.join(SYSTEMS)} (default: all)")] = ""
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds over all systems")] = 2
    minutes: Annotated[float, typer.Option(min=0.1, help="no part begins later than that")] = 26.0
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="of each load")] = 2.0
    short: Annotated[
        bool, typer.Option("--short", help="one short round of the main parts: three minutes")
    ] = False
    crash_gb: Annotated[float, typer.Option(min=0.01, help="gigabytes to recover after a crash")] = 1.0
    out: Annotated[Path, typer.Option(help="folder for compare.json, the page, and the data meanwhile")] = (
        Path("compare-runs")
    )
    markdown: Annotated[bool, typer.Option("--markdown", help="print a table in Markdown")] = False


def run(options: CompareOptions) -> int:
    """Measure raftlog beside other systems on this machine, under the same load, in one run."""
    parts = _chosen(options.only, PARTS, "part")
    systems = _chosen(options.systems, SYSTEMS, "system")
    if options.short:
        parts = [each for each in parts if options.only or PARTS[each].short]
        systems = [each for each in systems if options.systems or not SYSTEMS[each].variant]
    confluent_kafka()
    comparison = _begin(systems, options)
    make_folders(options.out)
    if (kind := file_system_of(options.out)) in IN_MEMORY:
        comparison.note(
            DISK, "", f"{options.out} is on a {kind}, where a sync is free; --out names the folder"
        )
    # the data is kept there too: a system's folder for temporary files may be in memory
    with tempfile.TemporaryDirectory(prefix="data-", dir=options.out.resolve()) as folder:
        plan = Plan(
            systems=[SYSTEMS[each] for each in systems],
            parts=[PARTS[each] for each in parts],
            scale=Scale(
                SHORT_SECONDS if options.short else options.seconds,
                options.short,
                int(options.crash_gb * GIGABYTE),
            ),
            rounds=1 if options.short else options.rounds,
            limit_s=options.minutes * 60,
            folder=Path(folder),
        )
        code = exits.OK
        try:
            with ended_by_signals():
                Run(plan, comparison, _say).run()
        except KeyboardInterrupt:
            code = exits.INTERRUPTED
        finally:
            _show(comparison, options)
    if not any(SUBJECT in each.samples for each in comparison.figures):
        return code or exits.FAILED
    return code


def _chosen(text: str, known: Mapping[str, object], what: str) -> list[str]:
    names = [each for each in text.split(",") if each]
    unknown = [each for each in names if each not in known]
    if unknown:
        raise exits.Failure(
            f"no such {what}: {', '.join(unknown)} (there are {', '.join(known)})", exits.USAGE
        )
    return names or list(known)


def _begin(systems: list[str], options: CompareOptions) -> Comparison:
    load = os.getloadavg()[0]
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return Comparison(
        began=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine={
            "cores": f"{os.cpu_count()} cores",
            "memory": f"{memory_gb:.0f} GB",
            "kernel": f"{platform.system()} {platform.release()}",
            "python": f"Python {platform.python_version()}",
            "load": f"load {load:.1f} before the run",
        },
        systems=[Described(each, SYSTEMS[each].title, _version(each)) for each in systems],
        options={"only": options.only, "seconds": f"{options.seconds:g}", "short": str(options.short)},
    )


def _version(system: str) -> str:
    try:
        return SYSTEMS[system].version()
    except Missing:
        return ""


def _show(comparison: Comparison, options: CompareOptions) -> None:
    """Print the table and the notes, and keep everything in files."""
    write_file(options.out / "compare.json", msgspec.json.format(msgspec.json.encode(comparison)))
    page_path = options.out / "compare.html"
    write_file(page_path, page.render(comparison, {name: part.title for name, part in PARTS.items()}))
    if options.markdown:
        print(*table.as_markdown(comparison), sep="\n")
    else:
        print(table.caption(comparison))
        for part, figures in comparison.by_part():
            print(f"\n{PARTS[part].title}")
            print_table(table.heads(comparison), list(table.rows(comparison, figures)), left=[0])
    for line in table.note_lines(comparison):
        _say(f"not measured: {line}")
    _say(f"the page: {page_path}; all samples: {options.out / 'compare.json'}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
