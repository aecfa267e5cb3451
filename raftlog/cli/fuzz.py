"""`raftlog fuzz`: random frames through the decoders and a simulated cluster, or to a real cluster under attack."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from raftlog.cli import exits
from raftlog.cli.attack import ProcessGround
from raftlog.cli.attack_report import figures
from raftlog.cli.end_signals import ended_by_signals
from raftlog.testing.cluster import ClusterError
from raftlog_chaos.attacks.registry import Attack
from raftlog_chaos.attacks.session import AttackSession
from raftlog_chaos.attacks.target import delete_topics, topics_made
from raftlog_chaos.attacks.verdict import Limits, Outcome
from raftlog_chaos.fuzz.campaign import CHUNK, Summary, number_of, run_campaign
from raftlog_chaos.fuzz.findings import Finding, write_regression
from raftlog_chaos.fuzz.live import Order, Report

SHOWN: Final = 10
SLOWEST_LIVE: Final = 200
"""Frames a second that a live run reaches at least, for how long it may take."""
LIVE_FRAME_BYTES: Final = 16
"""Memory that a node may keep for each frame, beyond what any attack may leave: many frames are lawful, and make things
that stay."""
LIVE: Final = Attack(
    "fuzz-live",
    "Send random frames to decoders or nodes, and check that neither fails.",
    "kafka",
    0.0,
    lambda _: "",
)


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of the command line."""

    frames: Annotated[int, typer.Option(min=1, help="how many to send")] = 200_000
    seed: Annotated[int, typer.Option(min=0, help="seed of all random choices")] = 1
    first: Annotated[
        int, typer.Option(min=0, help="begin at this chunk of 20,000 frames of the seed, if not live")
    ] = 0
    live: Annotated[
        bool,
        typer.Option("--live/--in-process", help="to a real cluster with bystanders, or within this machine"),
    ] = False
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="processes, if not live")] = 2
    out: Annotated[Path, typer.Option(help="where frames that found something are kept")] = Path(
        "fuzz-findings"
    )
    json: Annotated[bool, typer.Option("--json", "-J", help="print JSON")] = False


def run(options: FuzzOptions) -> int:
    """Send random frames, made from Kafka's message schemas, and look for crashes, hangs and lost data."""
    try:
        with ended_by_signals():
            return _run_live(options) if options.live else _run_here(options)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except (OSError, ClusterError) as error:
        raise exits.Failure(str(error)) from None


# --- in process


def _run_here(options: FuzzOptions) -> int:
    def report(summary: Summary, new: list[Finding]) -> None:
        rate = summary.frames / summary.seconds
        print(
            f"{summary.frames:,} frames, {rate:,.0f} a second, {len(summary.findings)} findings",
            file=sys.stderr,
        )
        for finding in new:
            seed, _ = summary.findings[finding.key]
            print(f"seed {seed}: {finding.text()}", file=sys.stderr, flush=True)

    summary, interrupted = Summary(), False
    try:
        run_campaign(
            summary,
            options.frames,
            seed=options.seed,
            jobs=options.jobs,
            first=options.first,
            on_progress=report,
        )
    except KeyboardInterrupt:
        interrupted = True
    paths = [
        write_regression(options.out, f"seed-{seed.replace('/', '-')}", finding, seed)
        for seed, finding in summary.findings.values()
        if finding.frames
    ]
    if options.json:
        print(msgspec.json.encode(_as_json(summary)).decode())
    else:
        print_summary(summary, options.seed)
        for path in paths:
            print(f"kept in {path}")
    if interrupted:
        done = (summary.next_chunk - options.first) * CHUNK
        print(
            f"go on with: raftlog fuzz --seed {options.seed} --first {summary.next_chunk} "
            f"--frames {options.frames - done}",
            file=sys.stderr,
        )
        return exits.INTERRUPTED
    return exits.FAILED if summary.findings else exits.OK


def print_summary(summary: Summary, seed: int) -> None:
    """Print the figures of a run, its findings and the frames that took longest."""
    share = summary.handled / max(1, summary.frames)
    print(
        f"{summary.frames:,} frames from seed {seed} in {summary.seconds:,.0f} s, {share:.0%} of them through whole "
        f"nodes: {summary.answered:,} answered, {summary.closed:,} connections closed; "
        f"{summary.handshakes:,} handshakes; at most {summary.peak_bytes >> 20} MiB a process"
    )
    print(
        "decoders: " + ", ".join(f"{count:,} {outcome}" for outcome, count in summary.outcomes.most_common())
    )
    for each in summary.slowest.worst():
        print(f"slow: {each.seconds * 1000:.0f} ms for {each.size:,} bytes: {each.kind[:120]}")
    for chunk, finding in summary.findings.values():
        again = f"raftlog fuzz --seed {seed} --first {number_of(chunk)} --frames {CHUNK}"
        print(f"found (seed {chunk}; again: {again}):")
        print(finding.text())
    print(f"{len(summary.findings)} findings")


def _as_json(summary: Summary) -> dict[str, Any]:
    return {
        "frames": summary.frames,
        "next_chunk": summary.next_chunk,
        "handled": summary.handled,
        "answered": summary.answered,
        "closed": summary.closed,
        "seconds": summary.seconds,
        "peak_bytes": summary.peak_bytes,
        "outcomes": dict(summary.outcomes),
        "slowest": [
            {"seconds": each.seconds, "kind": each.kind, "bytes": each.size}
            for each in summary.slowest.worst()
        ],
        "findings": [
            {
                "seed": seed,
                "what": each.what,
                "kind": each.kind,
                "port": each.port,
                "frames": [one.hex() for one in each.frames],
            }
            for seed, each in summary.findings.values()
        ],
    }


# --- live


def _run_live(options: FuzzOptions) -> int:
    limits = Limits(rest_bytes=Limits().rest_bytes + LIVE_FRAME_BYTES * options.frames)
    session = AttackSession(ProcessGround("usual"), limits)
    report = Report()
    try:
        session.open()

        def send() -> str:
            nonlocal report
            report = _send(Order(session.target, options.frames, str(options.seed)))
            delete_topics(session.target, topics_made(session.target))
            return f"{report.answered:,} answered, {report.closed:,} closed, {report.given_up:,} given up"

        outcome = session.judge(LIVE, send)
        closing = session.close()
    except BaseException:
        session.abandon()
        raise
    outcome.faults += [*closing.lost, *closing.kept, *report.wrong]
    outcome.status = "failed" if outcome.faults else "passed"
    if options.json:
        print(msgspec.json.encode({"report": report, "outcome": outcome}).decode())
    else:
        print_live(report, outcome)
    if outcome.faults:
        for number, burst in enumerate(report.suspects):
            frames = tuple(bytes.fromhex(each) for each in burst)
            finding = Finding("live", outcome.faults[0], "closed though it can be understood", frames)
            write_regression(options.out, f"live-{options.seed}-{number}", finding, str(options.seed))
    return exits.FAILED if outcome.faults else exits.OK


def _send(order: Order) -> Report:
    """Send the frames from a process of its own; return its report."""
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "raftlog_chaos.fuzz.live"],
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            timeout=60 + order.frames / SLOWEST_LIVE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Report(wrong=[f"the fuzzer was not done after {error.timeout:g} s"])
    if ran.returncode:
        return Report(wrong=[f"the fuzzer itself ended with code {ran.returncode}"])
    return msgspec.json.decode(ran.stdout, type=Report)


def print_live(report: Report, outcome: Outcome) -> None:
    """Print the figures and faults of a live run."""
    rate = report.frames / max(report.seconds, 0.001)
    print(
        f"{report.frames:,} frames in {report.seconds:,.0f} s ({rate:,.0f} a second): {outcome.seen.answered}; "
        f"{report.http:,} HTTP requests, {report.handshakes:,} handshakes at controllers' ports"
    )
    print(f"error codes: {', '.join(f'{code} x{count:,}' for code, count in report.errors.items())}")
    print(f"{outcome.status}: {figures(outcome)}")
    for fault in outcome.faults[:SHOWN]:
        print(f"! {fault}")
