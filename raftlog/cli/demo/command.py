"""`raftlog demo`: a real file through a real cluster by stock clients, nodes killed meanwhile, and a verdict.

The sequence: start, stream the bulk at full speed, then trickle while nodes are killed and paused, read all back with
another client library, compare. Exit code 0 only if no record was lost, duplicated, reordered or changed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from raftlog.cli import exits
from raftlog.cli.demo.faults import FaultScript, Outage
from raftlog.cli.demo.screen import Screen
from raftlog.cli.demo.stream import Stream
from raftlog.cli.demo.text import Text, find_text
from raftlog.cli.demo.verdict import Checker, Verdict, read_back
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.testing.cluster import Cluster, ClusterError
from raftlog.testing.progress import Stalled, patient

TOPIC = "demo"
PARTITIONS = 6
TRICKLE_PER_S = 5_000
"""Records per second while nodes are killed: fine enough to see a gap, and it leaves the machine to the cluster."""
BULK_SHARE = 0.75
CREATE_TIMEOUT_S = 60.0
CLEAN = "clean: no record lost or duplicated, every byte as in the file"
PROMISES_NOTHING = "acks={} may lose or duplicate records when a leader dies, so the above is allowed"


class Acks(StrEnum):
    """The acknowledgements that a producer waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command line."""

    file: Annotated[
        Path | None, typer.Option(help="text to stream, line by line (default: text found here)")
    ] = None
    nodes: Annotated[int, typer.Option(min=1, max=9, help="nodes to start")] = 3
    records: Annotated[int, typer.Option(min=1, help="records to send at least")] = 200_000
    acks: Annotated[Acks, typer.Option(help="what producing waits for; only all promises anything")] = (
        Acks.ALL
    )
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster running until Ctrl-C")] = False
    json: Annotated[bool, typer.Option("--json", "-J", help="print the report as JSON")] = False


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the run. `bytes` are of keys and values; the rates are the bulk's, through one Python client."""

    nodes: int
    text: str
    ready_s: float
    records: int
    bytes: int
    records_per_s: float
    mb_per_s: float
    outages: tuple[Outage, ...]
    verdict: Verdict
    acks: str = "all"

    @property
    def passed(self) -> bool:
        """Whether the cluster kept the promise of `acks`: all records, or only that none is made up."""
        return self.verdict.clean if self.acks == "all" else not self.verdict.different

    @property
    def conclusion(self) -> str:
        if self.verdict.clean:
            return CLEAN
        return PROMISES_NOTHING.format(self.acks) if self.passed else "FAILED"

    def as_json(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "text": self.text,
            "ready_s": round(self.ready_s, 3),
            "records": self.records,
            "bytes": self.bytes,
            "records_per_s": round(self.records_per_s),
            "mb_per_s": round(self.mb_per_s, 1),
            "outages": [
                {"event": each.event, "longest_gap_s": round(each.gap_s, 3)} for each in self.outages
            ],
            "verdict": self.verdict.as_json(),
            "acks": self.acks,
            "clean": self.verdict.clean,
        }

    def as_text(self) -> Iterator[str]:
        verdict = self.verdict
        yield ""
        yield f"{self.records:,} records, {self.bytes / 1e6:.1f} MB: lines of {self.text}, repeated"
        yield f"ready        {_nodes(self.nodes)} in {self.ready_s:.2f} s"
        yield f"throughput   {self.records_per_s:,.0f} records/s, {self.mb_per_s:.1f} MB/s (one Python client)"
        for outage in self.outages:
            yield f"longest gap  {outage.gap_s * 1000:5.0f} ms  {outage.event}"
        yield (
            f"read back    {verdict.read:,}: {verdict.lost} lost, {verdict.duplicated} duplicated, "
            f"{verdict.out_of_order} out of order, {verdict.different} different, "
            f"{verdict.unacknowledged} never acknowledged"
        )
        yield f"verdict      {self.conclusion}"


def run(options: DemoOptions) -> int:
    """Start a cluster, stream a file through it, kill its nodes meanwhile, and prove that no record was lost."""
    try:
        _require_clients()
        text = find_text(options.file)
        with terminated_like_interrupted() as asked, closing(Cluster(options.nodes)) as cluster:
            report = _run(cluster, text, options, asked)
            _show(report, options)
            if options.keep:
                _wait_for_interrupt(cluster)
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(
            exits.INTERRUPTED
        )  # all is taken down; a client that still looks for the nodes would hold up the end
    except (ClusterError, Stalled, OSError, ImportError) as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.FAILED
    return 0 if report.passed else exits.VERIFICATION_FAILED


def _require_clients() -> None:
    """Raise ImportError now rather than after the first half of the run."""
    try:
        import confluent_kafka
        import kafka  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the demo needs two Kafka clients ({error}): pip install confluent-kafka kafka-python"
        ) from None
    assert confluent_kafka.version()


@contextmanager
def terminated_like_interrupted() -> Iterator[threading.Event]:
    """Let SIGTERM, too, unwind through what takes the nodes down.

    The event is set as well: an exception raised in the midst of a client library's callback may get lost there.
    """
    asked = threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        asked.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(cluster: Cluster, text: Text, options: DemoOptions, asked: threading.Event) -> Report:
    with Screen(quiet=options.json) as screen:
        ready_s = cluster.start()
        screen.say(f"{_nodes(options.nodes)} ready in {ready_s:.2f} s at {cluster.bootstrap_servers}")
        _create_topic(cluster, options.nodes)
        stream = Stream(
            cluster.bootstrap_servers, TOPIC, text=text, partitions=PARTITIONS, acks=options.acks.value
        )
        stream.asked_to_end = asked
        bulk = max(1, int(options.records * BULK_SHARE))
        screen.phase("streaming", bulk)
        took_s = stream.bulk(bulk, progress=screen.progress)
        rates = (stream.acked / took_s, stream.bytes / took_s / 1e6)
        outages = _stream_through_faults(cluster, stream, screen)
        screen.phase("sending the rest", options.records)
        stream.bulk(max(0, options.records - stream.sent), progress=screen.progress)
        screen.phase("reading back", stream.sent)
        checker = Checker(text, stream.sent)
        read_back(cluster.bootstrap_servers, TOPIC, checker=checker, progress=screen.progress)
        return Report(
            nodes=options.nodes,
            text=text.name,
            ready_s=ready_s,
            records=stream.sent,
            bytes=stream.bytes,
            records_per_s=rates[0],
            mb_per_s=rates[1],
            outages=outages,
            verdict=checker.conclude(stream.failed),
            acks=options.acks.value,
        )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _create_topic(cluster: Cluster, nodes: int) -> None:
    client = confluent_kafka()
    topic = client.admin.NewTopic(
        TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=min(3, nodes),
        config={"min.insync.replicas": "2" if nodes >= 3 else "1"},
    )
    admin = client.admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    limit_s = patient(CREATE_TIMEOUT_S)
    for future in admin.create_topics([topic], operation_timeout=limit_s, request_timeout=limit_s).values():
        future.result(2 * limit_s)


def _stream_through_faults(cluster: Cluster, stream: Stream, screen: Screen) -> tuple[Outage, ...]:
    script = FaultScript(cluster, stream, topic=TOPIC, say=screen.say)
    stream.start_trickle(TRICKLE_PER_S)
    try:
        script.run()
    finally:
        stream.finish()
    return tuple(script.outages)


def _show(report: Report, options: DemoOptions) -> None:
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(*report.as_text(), sep="\n")
    sys.stdout.flush()


def _wait_for_interrupt(cluster: Cluster) -> None:
    lines = [f"the cluster keeps running at {cluster.bootstrap_servers}; Ctrl-C stops and deletes it"]
    lines += [
        f"  node {each.node_id}  {each.address}  process {each.pid}  log {each.log_path}"
        for each in cluster.nodes.values()
    ]
    lines.append(f"  raftlog consume -b {cluster.nodes[1].address} -t {TOPIC} -c 3 --json")
    print(*lines, sep="\n", file=sys.stderr)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
