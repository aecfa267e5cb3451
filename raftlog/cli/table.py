"""`raftlog table`: topics as Delta or Iceberg tables."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Never

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import Topic, Topics, noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target
from raftlog.cli.timestamps import read_moment
from raftlog.cli.tombstones import missed_tombstones
from raftlog.tables import patience
from raftlog.tables.formats import Format
from raftlog.tables.patience import watched

if TYPE_CHECKING:
    from raftlog.tables.job import Committed, Destination, Job

INSTALL: Final = "this needs the packages of raftlog[table]: pip install '.[table]' in a checkout"
GROUP: Final = "raftlog-table"

table = noun("Write topics to Delta or Iceberg tables, each record exactly once.")


COLUMNS: Final = ("partition", "next_offset", "end_offset", "lag")

To = Annotated[
    str, typer.Option("--to", metavar="PATH|URL", help="the folder of the tables, or s3://BUCKET/PATH")
]


FormatOption = Annotated[Format, typer.Option("--format", help="of the tables")]
Catalog = Annotated[
    str,
    typer.Option(
        "--catalog",
        metavar="URI|NAME",
        help="of Iceberg tables: a REST server, a database, or a name in pyiceberg's configuration "
        "(default: a database in the folder)",
    ),
]
RegistryUrl = Annotated[
    str,
    typer.Option(
        "--registry",
        metavar="URL",
        help="of schemas: values become columns; default: values are bytes",
    ),
]
Every = Annotated[float, typer.Option("--every", metavar="S", min=0.1, help="commit after so many seconds")]
Megabytes = Annotated[
    int, typer.Option("--megabytes", metavar="N", min=1, max=1024, help="or after so many megabytes")
]
TidyEvery = Annotated[
    int,
    typer.Option("--tidy-every", metavar="N", min=0, help="merge small files after N commits; 0: never"),
]
Begin = Annotated[
    str, typer.Option("--from", metavar="TIME", help="where a new table begins: beginning, end or a time")
]
UntilEnd = Annotated[bool, typer.Option("--until-end", help="stop at what is the end of the topics now")]
SkipLost = Annotated[
    bool, typer.Option("--skip-lost", help="continue after records that the topic no longer has")
]
Group = Annotated[
    str, typer.Option("--group", "-G", metavar="GROUP", help='shows the lag to other tools; "": none')
]
AsJson = Annotated[bool, typer.Option("--json", "-J", help="print commits as JSON, one per line")]


@verb(table, "describe", prints_rows=True)
def describe(
    target: Target,
    topic: Topic,
    *,
    to: To,
    format: FormatOption = Format.DELTA,
    catalog: Catalog = "",
    form: Form,
) -> None:
    """Show how far a table is: the next offset of each partition, the end of the topic, and the lag."""
    from raftlog.tables.table import StoreFailed

    table = _open(format, to, catalog, [topic])[topic].table
    try:
        with watched(lambda: table.asked, _say):
            found = table.load()
    except StoreFailed as error:
        raise Failure(f"{to}: {error}") from None
    if found is None:
        raise Failure(f"there is no table of {topic} in {to}", exits.NOT_FOUND)
    from raftlog.client.fetching import list_offsets
    from raftlog.client.metadata import LATEST

    with target.failures(needs="DESCRIBE"):
        keys = [(topic, each) for each in target.topic(topic).partitions]
        ends = {at[1]: end for at, end in list_offsets(target.cluster, keys, LATEST, committed=True).items()}
    rows = []
    for partition, end in sorted(ends.items()):
        offset = found.offsets.get(partition)
        lag = None if offset is None else max(0, end - offset)
        rows.append({"topic": topic} | dict(zip(COLUMNS, (partition, offset, end, lag), strict=True)))
    print_rows(rows, form, COLUMNS)


@verb(table, "run")
def run(
    target: Target,
    topics: Topics,
    *,
    to: To,
    format: FormatOption = Format.DELTA,
    catalog: Catalog = "",
    registry: RegistryUrl = "",
    every: Every = 60.0,
    megabytes: Megabytes = 128,
    tidy_every: TidyEvery = 20,
    begin: Begin = "beginning",
    until_end: UntilEnd = False,
    skip_lost: SkipLost = False,
    group: Group = GROUP,
    as_json: AsJson = False,
) -> int:
    """Append topics to tables, one table per topic, until Ctrl-C or SIGTERM.

    \b
    raftlog table run orders --to ./lake              follow a topic, a commit per minute
    raftlog table run orders --to ./lake --until-end  append what there is, and stop
    raftlog table run orders payments --to s3://lake/raw --every 300

    The table itself holds the next offsets: run the same command again after any failure, and each record is in the
    table once. A second writer takes the table over, and the first one stops.
    """
    try:
        from raftlog.tables.job import Job, Plan, Reports
    except ImportError:
        raise Failure(INSTALL) from None
    from raftlog.tables.progress import TableError
    from raftlog.tables.registry import RegistryUnreachable

    plan = Plan(
        begin=_begin(begin),
        commit_s=every,
        commit_bytes=megabytes << 20,
        tidy_every=tidy_every,
        group=group,
        until_end=until_end,
        skip_lost=skip_lost,
    )
    tables = _open(format, to, catalog, topics, registry)

    def resumed(topic: str, offsets: Mapping[int, int]) -> None:
        if line := missed_tombstones(target, topic, offsets):
            _say(line)

    reports = Reports(_print_json if as_json else _print_line, _say, resumed)
    job = Job(target.cluster, tables, plan, reports)
    with _stopped_by_signals(job) as caught, target.failures(needs="READ"):
        try:
            _run_in_thread(job)
        except RegistryUnreachable as error:
            raise Failure(str(error), exits.UNREACHABLE) from None
        except TableError as error:
            raise Failure(str(error)) from None
    return exits.INTERRUPTED if signal.SIGINT in caught else exits.OK


def _begin(offset: str) -> int:
    """Return the time that a position means. Raise Failure."""
    from raftlog.client.metadata import EARLIEST, LATEST

    known = {"beginning": EARLIEST, "end": LATEST}
    if offset in known:
        return known[offset]
    return read_moment("--from", offset)


def _open(
    format: Format, to: str, catalog: str, topics: Sequence[str], registry: str = ""
) -> dict[str, Destination]:
    """Return the table of each topic. Raise Failure."""
    from raftlog.tables import formats
    from raftlog.tables.table import StoreFailed

    try:
        place = formats.Place(format, to, catalog)
        with watched(lambda: place.asked, _say):
            return {topic: formats.open_destination(place, topic, registry) for topic in topics}
    except ImportError:
        raise Failure(INSTALL) from None
    except ValueError as error:
        raise Failure(str(error), exits.USAGE) from None
    except StoreFailed as error:
        raise Failure(f"{to}: {error}") from None


def _say(line: str) -> None:
    print(f"raftlog: {line}", file=sys.stderr, flush=True)


def _print_line(done: Committed) -> None:
    dead = ""
    if done.dead_letters:
        first = printable(done.dead_letter_reason)
        dead = (
            f"{_counted(done.dead_letters, 'dead letter')} in {done.dead_letters_table}, the first: {first}; "
        )
    lag = "unknown" if done.lag is None else f"{done.lag:,}"
    print(
        f"{done.topic}: version {done.version}, {_counted(done.records, 'record')}, {done.bytes / 1e6:,.1f} MB, "
        f"in {done.seconds:.1f} s; {dead}lag {lag}",
        flush=True,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _print_json(done: Committed) -> None:
    print(json.dumps(asdict(done)), flush=True)


def _run_in_thread(job: Job) -> None:
    """Run a job, and handle signals meanwhile: no handler runs while a library waits for a store in this thread."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            job.run()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="raftlog-table", daemon=True).start()
    done.result()


@contextmanager
def _stopped_by_signals(job: Job) -> Iterator[set[int]]:
    """Let SIGTERM and SIGINT end the job after a commit; yield the received signals.

    A second signal ends the process at once, and so does a commit that takes too long. The next run finds in the table
    what became of it.
    """
    caught: set[int] = set()
    patient = threading.Timer(patience.STOP_S, _give_up)
    patient.daemon = True

    def stop(number: int, _frame: Any) -> None:
        if caught:
            _leave(exits.INTERRUPTED)
        caught.add(number)
        job.stopping = True
        _say(f"stopping after this commit, or in {patience.STOP_S:.0f} s; once more stops at once")
        patient.start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        patient.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up() -> None:
    _say(
        f"stopped without its last commit, which took over {patience.STOP_S:.0f} s; the next run continues where the "
        "table ends"
    )
    _leave(exits.FAILED)


def _leave(code: int) -> Never:
    """End the process although a library waits for a store in another thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
