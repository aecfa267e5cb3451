"""The folder that a run leaves: history, node logs, timeline, verdict, figures over time, and the page that shows it.

The page can be drawn again from the other files alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from raftlog.base.disk import write_file
from raftlog_chaos.runs.case import Case
from raftlog_chaos.runs.landmarks import KINDS, Event
from raftlog_chaos.runs.meter import Beats
from raftlog_chaos.runs.outcome import Outcome
from raftlog_chaos.runs.picture import ChartData, Mark, Silence
from raftlog_chaos.runs.record import Record
from raftlog_chaos.runs.report import Page, render
from raftlog_chaos.runs.series import Bucket, Series

HISTORY: Final = "history.jsonl"
TIMELINE: Final = "timeline.jsonl"
FIGURES: Final = "series.json"
VERDICT: Final = "verdict.json"
WORDS: Final = "verdict.txt"
CONFIG: Final = "config.json"
REPORT: Final = "report.html"
NODES: Final = "cluster"
SILENCE_S: Final = 0.1
"""A time without an acknowledgement that is worth drawing."""
MAX_SILENCES: Final = 2_000


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the timeline; `at_s` seconds of the run. `node` 0: not a node's."""

    at_s: float
    kind: str
    text: str
    node: int = 0


class Figures(msgspec.Struct, kw_only=True):
    """The figures of the meter and the workload that the drawing needs."""

    bucket_s: float
    partitions: int
    buckets: list[Bucket]
    silences: list[tuple[int, float, float]]


class Config(msgspec.Struct, kw_only=True):
    """The case that was run. `began`: UTC."""

    case: dict[str, Any]
    place: str
    seed: int
    began: str
    version: str = ""


def new_folder(parent: Path, case: str, now: datetime) -> Path:
    """Make the folder of a run that begins now. Raises OSError."""
    stamp = now.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = parent / (f"{stamp}-{case}" if number == 1 else f"{stamp}-{case}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent} has a thousand runs of {stamp}-{case}")


def write_config(folder: Path, case: Case, *, testbed: str, seed: int, version: str) -> None:
    """Write what is run, before the run."""
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    _write(folder / CONFIG, Config(case=asdict(case), place=testbed, seed=seed, began=began, version=version))


def write_outcome(folder: Path, outcome: Outcome, verdict: str) -> None:
    """Write the verdict, for humans and for programs."""
    _write(folder / VERDICT, outcome)
    write_file(folder / WORDS, "\n".join([*outcome_lines(outcome), "", verdict.rstrip(), ""]))


def outcome_lines(outcome: Outcome) -> Iterable[str]:
    """Yield an outcome as the first lines of its verdict."""
    yield f"{outcome.case}: {outcome.status} ({outcome.place}, seed {outcome.seed}, {outcome.seconds:.0f} s)"
    yield from (f"  {reason}" for reason in outcome.reasons)
    yield from (f"  {note}" for note in outcome.notes)
    yield f"  {outcome.operations:,} operations, {outcome.acked:,} writes acknowledged, {outcome.read:,} records read"
    for each in outcome.unavailability:
        figures = f"median {each.median_s:.3f} s, p99 {each.p99_s:.3f} s, max {each.max_s:.3f} s"
        yield f"  {each.fault}: {each.count} times, without an acknowledgement {figures}"
    for name, found in outcome.commits.items():
        for each in found:
            figures = f"median {each.median_s:.3f} s, max {each.max_s:.3f} s"
            yield f"  {each.fault}: {each.count} times, without a commit of {name} {figures}"


def write_timeline(folder: Path, record: Record, events: Sequence[Event]) -> None:
    """Write phases, faults and the nodes' log events, in order of time."""
    entries = [Entry(at_s=each.began_s, kind="phase", text=each.name) for each in record.phases]
    for each in record.injections:
        words = f"{each.fault} {each.target}".strip()
        entries.append(Entry(at_s=each.at_s, kind="fault", text=f"inject {words}"))
        entries.append(Entry(at_s=each.until_s, kind="fault", text=f"heal {words}"))
    entries += [
        Entry(
            at_s=event.wall_s - record.began_wall_s,
            kind=KINDS[event.name],
            text=event.text,
            node=event.node_id,
        )
        for event in events
        if event.name in KINDS
    ]
    for entry in entries:
        entry.at_s = round(entry.at_s, 4)
    entries.sort(key=lambda entry: entry.at_s)
    encoder = msgspec.json.Encoder()
    write_file(folder / TIMELINE, b"".join(encoder.encode(entry) + b"\n" for entry in entries))


def write_figures(folder: Path, record: Record) -> None:
    """Write latency and throughput over time, and the meter's silences."""
    series = Series()
    for each in record.beats:
        series.add_acks(each.acked_at, each.took_s, written=False)
    series.add_acks(record.tally.acked_at, record.tally.took_s, written=True)
    series.add_reads(record.tally.read_at, record.tally.read_count)
    figures = Figures(
        bucket_s=series.bucket_s,
        partitions=len(record.beats),
        buckets=series.buckets(record.ended_s),
        silences=silences(record.beats),
    )
    _write(folder / FIGURES, figures)


def silences(beats: Sequence[Beats]) -> list[tuple[int, float, float]]:
    """Return the meter's longest silences, in order of time: partition, from, until."""
    found = [
        (partition, round(before, 4), round(after, 4))
        for partition, each in enumerate(beats)
        for before, after in zip(each.acked_at, each.acked_at[1:], strict=False)
        if after - before >= SILENCE_S
    ]
    longest = sorted(found, key=lambda each: each[1] - each[2])[:MAX_SILENCES]
    return sorted(longest, key=lambda each: each[1])


def write_report(folder: Path) -> Path:
    """Draw the page from the folder's other files. Raises OSError or MsgspecError for a missing or broken file."""
    outcome = msgspec.json.decode((folder / VERDICT).read_bytes(), type=Outcome)
    figures = msgspec.json.decode((folder / FIGURES).read_bytes(), type=Figures)
    config = msgspec.json.decode((folder / CONFIG).read_bytes(), type=Config)
    decoder = msgspec.json.Decoder(Entry)
    entries = [decoder.decode(line) for line in (folder / TIMELINE).read_bytes().splitlines()]
    scene = ChartData(
        outcome=outcome,
        buckets=figures.buckets,
        marks=[Mark(each.at_s, each.kind, f"node {each.node} {each.text}") for each in entries if each.node],
        silences=[Silence(*each) for each in figures.silences],
        partitions=figures.partitions,
    )
    words = (folder / WORDS).read_text(encoding="utf-8")
    settings = msgspec.json.format(msgspec.json.encode(config.case), indent=2).decode()
    page = render(Page(scene, words, settings, config.began))
    path = folder / REPORT
    write_file(path, page)
    return path


def keep_logs(folder: Path, *, data: bool) -> None:
    """Keep only logs and settings of the nodes' folders, or with `data` everything."""
    if data:
        return
    for each in (folder / NODES).glob("node-*"):
        for inner in each.iterdir():
            if inner.is_dir():
                shutil.rmtree(inner, ignore_errors=True)


def _write(path: Path, value: Any) -> None:
    write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
