"""`raftlog bench`: what a three-node cluster costs and how fast it is, on this machine, as one table.

Every part has a cluster of its own, so that a part alone (`--only`) shows the same as the whole. Figures that depend on
the machine stand beside a yardstick of the same run. Aims are printed, not enforced: machines differ.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.bench import groups as bench_groups
from raftlog.cli.bench import queues as bench_queues
from raftlog.cli.bench import quotas as bench_quotas
from raftlog.cli.bench import racks as bench_racks
from raftlog.cli.bench import registry as bench_registry
from raftlog.cli.bench.figure import Figure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.testing.cluster import AdminCluster, Cluster, ClusterError
from raftlog.testing.progress import Stalled, patient
from raftlog_chaos.bench import measure, start
from raftlog_chaos.bench.failover import (
    AIMS,
    FAILOVER_FAULTS,
    NEXT_DEATH_S,
    DeathsInTurn,
    FailoverRun,
    Outcome,
    Round,
)
from raftlog_chaos.runs.landmarks import LANDMARKS, count_events

NODES: Final = 3
TOPIC: Final = "bench"
PARTITIONS: Final = 6
MANY_PARTITIONS: Final = 2_000
RECORDS: Final = {100: 2_000_000, 1_000: 300_000, 10_000: 30_000}
"""Records of a throughput run, by their size in bytes."""
THROUGHPUT_AIMS: Final = {100: 70.0, 1_000: 250.0}
"""MB/s."""
LATENCY_RATE: Final = 1_000
LATENCY_S: Final = 10.0
SETTLE_S: Final = 3.0
IDLE_S: Final = 10.0
CREATE_TIMEOUT_S: Final = 60.0
RECOVERED_RECORD_BYTES: Final = 1_000
FILL_STEP_MB: Final = 500
"""After so much more a line says how much is written."""
LOGINS: Final = 2_000
"""The number of logins with each mechanism."""
LOGINS_AIM: Final = 1_000.0
"""A second."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of the command line."""

    only: Annotated[
        str,
        typer.Option(
            help="parts: start, throughput, latency, failover, recovery, partitions, groups, rebalance, "
            "commits, queues, logins, quotas, racks, registry (default: all)"
        ),
    ] = ""
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds of each start and each fault")] = 5
    data: Annotated[str, typer.Option(help="recovery: MB on each node, in one cluster that grows")] = (
        "10,100,300"
    )
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table"


def run(options: BenchOptions) -> int:
    """Measure a three-node cluster on this machine: start, throughput, latency, failover, many partitions, groups."""
    if options.output not in ("table", "json"):
        raise typer.BadParameter("must be table or json", param_hint="-o")
    parts = [part for part in options.only.split(",") if part]
    if not all(size.isdecimal() and int(size) for size in options.data.split(",")):
        raise typer.BadParameter("must be numbers of MB, separated by commas", param_hint="--data")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"raftlog: no such part: {', '.join(unknown)} (there are {', '.join(PARTS)})", file=sys.stderr)
        return exits.USAGE
    confluent_kafka()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # it, too, unwinds through what takes the nodes down
    figures: list[Figure] = []
    load = os.getloadavg()[0]
    try:
        for part in parts or PARTS:
            _say(f"{part} ...")
            figures.extend(PARTS[part](options))
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except (ClusterError, Stalled, OSError) as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.FAILED
    finally:
        print(
            *(as_json(figures, load) if options.output == "json" else as_table(figures, load)),
            sep="\n",
            flush=True,
        )
    return 0


# --- parts


def _start(options: BenchOptions) -> Iterator[Figure]:
    """Yield times to ready, of clusters in which every node sees all, and the cost of an idle node."""
    rounds = range(max(1, options.rounds))
    for name, nodes, forked, aim in (
        ("three nodes {}", NODES, True, 0.5),
        ("one node {}", 1, False, 0.4),
        ("three nodes {}, not forked", NODES, False, None),
    ):
        times = [start.of_processes(nodes, forked=forked) for _ in rounds]
        yield _median(name.format("ready"), [each.ready for each in times], aim)
        yield _median(name.format("closed"), [each.closed for each in times], 0.3)
    times = [start.in_process() for _ in rounds]
    yield _median("a node in the tests' process ready", [each.ready for each in times], 0.3)
    yield _median("a node in the tests' process closed", [each.closed for each in times], 0.3)
    yield _median("a node in the tests' process, imports", [each.imported for each in times], None)
    yield _median("raftlog --help", [start.help_seconds() for _ in rounds], 0.1)
    with closing(Alone(1)) as cluster:
        cluster.start()
        yield from _imports(measure.cpu_seconds(_pids(cluster)))
        yield from _idle(cluster, "start", "one node, ", cpu_aim=0.5, rss_aim=45.0)
    with closing(AdminCluster(NODES)) as cluster:
        cluster.start()
        yield from _idle(cluster, "start", "three forked nodes, ", cpu_aim=0.5, rss_aim=45.0)


class Alone(AdminCluster):
    """Nodes with their HTTP APIs, as `raftlog server` starts them."""

    forked = False


def _median(name: str, seconds: Sequence[float], aim: float | None) -> Figure:
    note = f"median of {len(seconds)}, worst {max(seconds):.2f} s"
    return Figure("start", name, statistics.median(seconds), "s", aim, note=note)


def _imports(start_cpu_s: float) -> Iterator[Figure]:
    """Yield what a node's imports cost, from byte code and from source, and how much of its start that is."""
    loaded_s, compiled_s = start.import_seconds(compiled=True), start.import_seconds(compiled=False)
    rest_s = max(0.0, start_cpu_s - loaded_s)
    for name, own_s in (("imports", loaded_s), ("imports without byte code", compiled_s)):
        share = 100 * own_s / (own_s + rest_s)
        yield Figure("start", name, own_s, "s", note=f"{share:.0f} % of a node's CPU time until it is ready")


def _idle(
    cluster: Cluster, part: str, prefix: str = "", *, cpu_aim: float = 2.0, rss_aim: float | None = 70.0
) -> list[Figure]:
    """Return the memory and CPU time of idle nodes."""
    time.sleep(SETTLE_S)
    pids = _pids(cluster)
    used = [measure.cpu_seconds([pid]) for pid in pids]
    began = time.monotonic()
    time.sleep(IDLE_S)
    passed = time.monotonic() - began
    busy = [
        100 * (measure.cpu_seconds([pid]) - before) / passed for pid, before in zip(pids, used, strict=True)
    ]
    rss = [measure.resident_bytes(pid) / 1e6 for pid in pids]
    return [
        Figure(part, f"{prefix}idle RSS per node", max(rss), "MB", rss_aim, note="the largest"),
        Figure(part, f"{prefix}idle CPU per node", max(busy), "%", cpu_aim, note="the busiest"),
    ]


def _throughput(_options: BenchOptions) -> Iterator[Figure]:
    """Yield acks=all with flush at replication factor 3, beside the same client against librdkafka's mock broker."""
    with closing(Cluster(NODES)) as cluster:
        cluster.start()
        for size, records in RECORDS.items():
            topic = f"{TOPIC}-{size}"
            _create_topic(cluster, topic, PARTITIONS)
            mock = measure.mock_throughput(record_bytes=size, records=records)
            ours = measure.throughput(
                {"bootstrap.servers": cluster.bootstrap_servers},
                topic,
                record_bytes=size,
                records=records,
                pids=_pids(cluster),
            )
            ratio = ours.megabytes_per_s / mock.megabytes_per_s
            note = f"{ours.records_per_s / 1e6:.2f} M records/s, {ratio:.2f} of the mock broker's"
            if ours.failed:
                note += f", {ours.failed} records failed"
            aim = THROUGHPUT_AIMS.get(size)
            yield Figure("throughput", f"{size} B", ours.megabytes_per_s, "MB/s", aim, "at least", note)
            yield Figure("throughput", f"{size} B, brokers' CPU", ours.cpu_s_per_gb, "s/GB")


def _latency(_options: BenchOptions) -> Iterator[Figure]:
    with closing(Cluster(NODES)) as cluster:
        cluster.start()
        _create_topic(cluster, TOPIC, PARTITIONS)
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        disk = measure.fdatasync_latency(str(cluster.directory))
        acks = measure.ack_latency(config, TOPIC, rate=LATENCY_RATE, seconds=LATENCY_S)
        arrival = measure.end_to_end_latency(config, TOPIC, rate=LATENCY_RATE, seconds=LATENCY_S)
    rate = f"at {LATENCY_RATE:,}/s"
    yield Figure("latency", "fdatasync p50", disk.p50, "ms", note="the disk's own")
    yield Figure("latency", "fdatasync p99", disk.p99, "ms", note="the disk's own")
    yield Figure("latency", "ack p50", acks.p50, "ms", 1.5, note=rate)
    yield Figure("latency", "ack p99", acks.p99, "ms", 8.0, note=rate)
    yield Figure("latency", "end to end p50", arrival.p50, "ms", note=rate)
    yield Figure("latency", "end to end p99", arrival.p99, "ms", 10.0, note=rate)


def _failover(options: BenchOptions) -> Iterator[Figure]:
    """Yield the longest gaps per partition, over all that the victim led or followed, and where the time went.

    Each pause has a new cluster: a broker is fenced for hanging once in ten minutes, and by nodes that were on time.
    """
    for scenario in FAILOVER_FAULTS:
        outcome, clusters = Outcome(scenario), options.rounds if scenario.strike == "pause" else 1
        for _ in range(clusters):
            with closing(Cluster(NODES)) as cluster:
                cluster.start()
                _create_topic(cluster, TOPIC, PARTITIONS)
                faults = FailoverRun(cluster, TOPIC, partitions=PARTITIONS)
                run = faults.run(scenario, options.rounds // clusters, on_round=_say_round)
                outcome.rounds.extend(run.rounds)
        yield from _gaps(outcome)


def _recovery(options: BenchOptions) -> Iterator[Figure]:
    """Yield how soon a killed node is back, and whether that was soon enough for the next node's death.

    The disk takes most of the time, so a cluster with more data is the former cluster with some more.
    """
    sizes = sorted(int(each) for each in options.data.split(","))
    for partitions, steps in ((PARTITIONS, sizes), (MANY_PARTITIONS, sizes[:1])):
        with closing(Cluster(NODES)) as cluster:
            cluster.start()
            _create_topic(cluster, TOPIC, partitions)
            for before, megabytes in pairwise((0, *steps)):
                failed = _fill(cluster, megabytes - before)
                deaths = FailoverRun(cluster, TOPIC, partitions=partitions).run_deaths_in_turn()
                name = f"{megabytes:,} MB" if partitions == PARTITIONS else f"{partitions:,} partitions"
                note = (
                    f"{failed} records failed" if failed else f"kill -9 with {megabytes:,} MB, then its start"
                )
                yield from _back(name, deaths, note)


def _fill(cluster: Cluster, megabytes: int) -> int:
    """Write so much to each node; return how many records failed."""
    printed_mb = 0

    def print_progress(records: int) -> None:
        nonlocal printed_mb
        written_mb = records * RECOVERED_RECORD_BYTES // 1_000_000
        if written_mb >= printed_mb + FILL_STEP_MB:
            printed_mb = written_mb
            _say(f"  {written_mb:,} of {megabytes:,} MB are written")

    return measure.fill(
        {"bootstrap.servers": cluster.bootstrap_servers},
        TOPIC,
        record_bytes=RECOVERED_RECORD_BYTES,
        records=megabytes * 1_000_000 // RECOVERED_RECORD_BYTES,
        on_progress=print_progress,
    )


def _back(name: str, deaths: DeathsInTurn, note: str) -> Iterator[Figure]:
    yield Figure("recovery", f"{name}, ready", deaths.ready_s, "s", 1.0, note=note)
    note = f"{deaths.cpu_s:.1f} s of CPU time, {deaths.read_mb:.0f} MB read"
    yield Figure("recovery", f"{name}, in every ISR", deaths.in_sync_s, "s", 2.0, note=note)
    note = f"worst gap, {NEXT_DEATH_S:.0f} s after the first one's start"
    yield Figure("recovery", f"{name}, next node dies", deaths.gap_s, "s", 0.5, note=note)


def _say_round(each: Round) -> None:
    stages = ", ".join(
        f"{name} {at * 1000:.0f}" for name, at in sorted(each.moments.items(), key=lambda item: item[1])
    )
    _say(f"  node {each.node_id}: {each.gap_s * 1000:.0f} ms ({stages})")


def _gaps(outcome: Outcome) -> Iterator[Figure]:
    name = outcome.scenario.name
    median, worst, errors = AIMS[name]
    seen = {landmark: outcome.moment_s(landmark) for landmark in LANDMARKS}
    stages = ", ".join(f"{landmark} {at * 1000:.0f}" for landmark, at in seen.items() if at is not None)
    yield Figure("failover", f"{name}, median", outcome.median_s, "s", median, note=f"ms after: {stages}")
    yield Figure(
        "failover", f"{name}, worst", outcome.worst_s, "s", worst, note=f"of {len(outcome.rounds)} rounds"
    )
    yield Figure("failover", f"{name}, return", outcome.worst_back_s, "s", note="worst gap during its return")
    yield Figure("failover", f"{name}, client errors", outcome.errors, "", errors)


def _partitions(_options: BenchOptions) -> Iterator[Figure]:
    """Yield what two thousand partitions cost, and how they change hands when a node dies."""
    with closing(Cluster(NODES)) as cluster:
        cluster.start()
        began = time.monotonic()
        _create_topic(cluster, TOPIC, MANY_PARTITIONS)
        cluster.wait_until(lambda: _all_led(cluster), "every partition has a leader and all its replicas")
        name = f"{MANY_PARTITIONS:,} partitions"
        yield Figure(
            "partitions", f"{name} created", time.monotonic() - began, "s", 10.0, note="as clients see it"
        )
        errors = measure.write_to_each(cluster.bootstrap_servers, TOPIC, MANY_PARTITIONS)
        took_s = time.monotonic() - began
        note = f"from the same start; {errors} errors"
        yield Figure("partitions", "each has acknowledged a record", took_s, "s", 10.0, note=note)
        yield from _idle(cluster, "partitions", cpu_aim=10.0, rss_aim=None)
        victim = next(each for each in cluster.nodes if each != cluster.controller_id())
        witness = next(each for each in cluster.nodes if each != victim)
        began, wall_began = time.monotonic(), time.time()
        cluster.kill(victim)
        cluster.wait_until(lambda: _left(cluster, victim), f"no partition is node {victim}'s")
        took_s = time.monotonic() - began
        log = cluster.nodes[witness].log_path.read_text().splitlines()
        changes = count_events(log, "roles_changed", wall_began)
        note = f"kill -9 of a node; {changes} change{'s' if changes != 1 else ''} of roles on node {witness}"
        yield Figure("partitions", f"{name} changed hands", took_s, "s", note=note)
        yield Figure("partitions", "changes of roles", changes, "", 1)
        errors = measure.write_to_each(cluster.bootstrap_servers, TOPIC, MANY_PARTITIONS)
        took_s = time.monotonic() - began
        note = f"from the kill, by a new client; {errors} errors"
        yield Figure("partitions", "each has acknowledged again", took_s, "s", note=note)


def _groups(_options: BenchOptions) -> Iterator[Figure]:
    return bench_groups.many(Figure, _create_topic)


def _rebalance(options: BenchOptions) -> Iterator[Figure]:
    return bench_groups.rebalance(Figure, _create_topic, options.rounds)


def _commits(options: BenchOptions) -> Iterator[Figure]:
    return bench_groups.commits(Figure, _create_topic, options.rounds)


def _queues(_options: BenchOptions) -> Iterator[Figure]:
    return bench_queues.many_workers(Figure, _create_topic)


def _logins(_options: BenchOptions) -> Iterator[Figure]:
    """Yield how many logins a node serves, each on a connection of its own."""
    from raftlog_chaos.bench.logins import measure_logins

    for each in measure_logins(LOGINS):
        aim = None if each.mechanism == "PLAIN" else LOGINS_AIM
        note = f"for a second of the node's CPU time; {each.per_s:.0f} a second here, beside the client"
        yield Figure("logins", each.mechanism, each.per_cpu_s, "/s", aim, "at least", note=note)


def _quotas(_options: BenchOptions) -> Iterator[Figure]:
    return bench_quotas.beside_a_greedy_client(Figure, _create_topic)


def _racks(_options: BenchOptions) -> Iterator[Figure]:
    return bench_racks.between_racks(Figure, _create_topic)


def _registry(_options: BenchOptions) -> Iterator[Figure]:
    return bench_registry.requests()


PARTS: Final[dict[str, Callable[[BenchOptions], Iterator[Figure]]]] = {
    "start": _start,
    "throughput": _throughput,
    "latency": _latency,
    "failover": _failover,
    "recovery": _recovery,
    "partitions": _partitions,
    "groups": _groups,
    "rebalance": _rebalance,
    "commits": _commits,
    "queues": _queues,
    "logins": _logins,
    "quotas": _quotas,
    "racks": _racks,
    "registry": _registry,
}


# --- what they share


def _pids(cluster: Cluster) -> list[int]:
    return [node.pid for node in cluster.nodes.values() if node.running]


def _create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    admin_module: Any = confluent_kafka().admin
    topic = admin_module.NewTopic(
        name, num_partitions=partitions, replication_factor=NODES, config={"min.insync.replicas": "2"}
    )
    admin = admin_module.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    limit_s = patient(CREATE_TIMEOUT_S)
    for future in admin.create_topics([topic], operation_timeout=limit_s, request_timeout=limit_s).values():
        future.result(2 * limit_s)


def _all_led(cluster: Cluster) -> bool:
    partitions = cluster.partitions(TOPIC)
    return len(partitions) == MANY_PARTITIONS and all(
        each.leader >= 0 and len(each.isr) == NODES for each in partitions.values()
    )


def _left(cluster: Cluster, victim: int) -> bool:
    partitions = cluster.partitions(TOPIC).values()
    return bool(partitions) and all(each.leader != victim and victim not in each.isr for each in partitions)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --- printing


def as_table(figures: Sequence[Figure], load: float) -> Iterator[str]:
    """Yield the lines of the table; a figure that misses its aim is marked."""
    cores = os.cpu_count() or 1
    yield f"{cores} cores, load {load:.1f} before the run" + (
        " (busy: speeds are not the machine's)" if load > cores / 2 else ""
    )
    rows = [_row(figure) for figure in figures]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    part = ""
    for figure, row in zip(figures, rows, strict=True):
        if figure.part != part:
            part = figure.part
            yield ""
        name, value, aim, mark = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"{name}  {value.strip():>{widths[1]}}  {aim}  {mark}  {figure.note}".rstrip()


def _row(figure: Figure) -> tuple[str, str, str, str]:
    sign = "≤" if figure.bound == "at most" else "≥"
    aim = "" if figure.aim is None else f"{sign} {figure.aim:g} {figure.unit}".rstrip()
    return (
        figure.name,
        f"{_rounded(figure.value)} {figure.unit}".rstrip(),
        aim,
        "" if figure.reached is not False else "!",
    )


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def as_json(figures: Sequence[Figure], load: float) -> Iterator[str]:
    """Yield one JSON document."""
    yield json.dumps(
        {"load": load, "figures": [{**asdict(figure), "reached": figure.reached} for figure in figures]},
        indent=2,
    )
