"""An attack session: honest clients work on one cluster while it is attacked, and each attack is measured.

Before the first attack, topics are created, and the honest clients (bystanders) start. Every node serves each API once,
so that lazy loading is not mistaken for a leak. Then the nodes' idle memory and files are noted. At the end, memory
must be back at the idle level, and every acknowledged record is read. A failed attack ends the session.

After each attack the session waits until files and connections are released, but only a few seconds for memory. A
node slightly above its idle memory goes into the next attack, and is judged at the end of the session.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, get_args

import msgspec

from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.codec import RequestHeader, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.attacks import facts
from raftlog_chaos.attacks.__main__ import START_S, Order, Report
from raftlog_chaos.attacks.bystanders import PARTITIONS, TOPIC, Bystanders
from raftlog_chaos.attacks.registry import Attack
from raftlog_chaos.attacks.target import Line, NodePorts, Port, Target, legacy, raw, request, send_each
from raftlog_chaos.attacks.verdict import (
    MIB,
    ClusterObservation,
    Limits,
    NodeObservation,
    Outcome,
    conclude,
    faults_at_rest,
    is_settled,
)
from raftlog_chaos.attacks.watch import Watch, open_files, resident_bytes, strangers

HONEST: Final = "127.0.0.1"
ATTACKED: Final = "attacked"
COMPACTED: Final = "attacked-compact"
FILL_BATCHES: Final = 8
FILL_BYTES: Final = 256 * 1024
"""Each batch of each partition of the attacked topic."""
CREATE_TOPICS: Final = 19
PRODUCE: Final = 0
FIND_COORDINATOR: Final = 10
ALREADY_THERE: Final = 36

WARM_S: Final = 2.0
"""How long bystanders work before the nodes count as idle."""
TAIL_S: Final = 0.5
"""Records that are sent so long after an attack's end still belong to it."""
LOOK_S: Final = 0.2
SOON_S: Final = 5.0
"""Memory above the idle level after this time, but below the limit, is checked again at the end of the session."""
SCHEMA_BYTES: Final = 32 * MIB
"""Memory of the schemas of all APIs and versions, each loaded with its first request, and kept."""

GUARD_BYTES: Final = 1536 * MIB
"""A node with so much memory is stopped with its cluster, and the attack has failed: the machine has other work."""
READY_S: Final = 30.0

SETTINGS: Final = {
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""For all nodes: housekeeping comes round during an attack, and deleted topics give their files back soon after."""
COMPACTED_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}
WARM_PATHS: Final = ("/v1/health", "/v1/quorum", "/metrics", "/openapi.json", "/v3/clusters")


class AttackedCluster(Protocol):
    """A cluster of processes that was started for one session."""

    @property
    def doors(self) -> Mapping[int, NodePorts]:
        """The ports of each node."""

    @property
    def bootstrap(self) -> str:
        """host:port of the nodes, joined by commas."""

    @property
    def client_settings(self) -> Mapping[str, str]:
        """librdkafka's settings of an honest client."""

    def pid(self, node: int) -> int: ...

    def log(self, node: int) -> Path:
        """Return the path of a node's log."""

    def ended(self, node: int) -> str:
        """Return how a node ended by itself, with the last words of its log; empty if it runs."""

    def close(self) -> None: ...


class Closing(NamedTuple):
    """Faults found at the end of a session, one line each: lost records, and memory that was not released."""

    lost: list[str]
    kept: list[str]


class AttackSession:
    """Call `open` once, `strike` for each attack until one fails, and `close` once."""

    def __init__(self, ground: AttackedCluster, limits: Limits) -> None:
        self.ground = ground
        self.limits = limits
        self.struck: list[str] = []
        """Names of the attacks so far."""
        self.idle_s = 0.0
        self.target = Target(dict(ground.doors), ATTACKED, COMPACTED, TOPIC)
        self._bystanders = Bystanders(ground.bootstrap, limits.still_s, ground.client_settings)
        self._pids = {node: ground.pid(node) for node in ground.doors}
        self._ports = [
            port for each in ground.doors.values() for name in get_args(Port) if (port := getattr(each, name))
        ]
        self._guarded = self._broken = ""
        self._calm_s = 0.0
        self._warm_since: float | None = None
        """The end of the last attack, if memory was not back when it was judged (time.monotonic)."""
        self._attacker: subprocess.Popen[bytes] | None = None
        self._watch = Watch(self._pids, guard_bytes=GUARD_BYTES, on_excess=self._guard)
        self._idle: dict[int, NodeObservation] = {}
        self._logs = {node: facts.LogTail(ground.log(node)) for node in ground.doors}

    # --- before

    def open(self, *, warm: bool = True) -> None:
        """Start the bystanders and note memory and files of the nodes before any attack. Raises OSError.

        Nodes that are not `warm` may keep SCHEMA_BYTES more.
        """
        prepare(self.target)
        self._bystanders.start()
        if warm:
            warm_up(self.target)
        else:
            self.limits = self.limits._replace(rest_bytes=self.limits.rest_bytes + SCHEMA_BYTES)
        self._watch.start()
        began = time.monotonic()
        while time.monotonic() - began < WARM_S or not self._bystanders.acknowledged(began):
            if time.monotonic() - began > READY_S:
                raise TimeoutError(f"bystanders: nothing was acknowledged within {READY_S:g} s")
            time.sleep(LOOK_S)
        sends, reads = self._bystanders.times(time.monotonic() - WARM_S, time.monotonic() - LOOK_S)
        self._calm_s = max(sends.p99_s, reads.p99_s)
        self._idle = self._look()

    def _look(self) -> dict[int, NodeObservation]:
        """Return memory, files and connections of the nodes now."""
        held = strangers(self._ports)
        found = {}
        for node, pid in self._pids.items():
            before = self._idle.get(node)
            resident, files = resident_bytes(pid), open_files(pid)
            found[node] = NodeObservation(
                idle_bytes=before.idle_bytes if before else resident,
                idle_files=before.idle_files if before else files,
                rest_bytes=resident,
                rest_files=files,
                strangers=_by_name(self.ground.doors[node], held),
                ended=self.ground.ended(node),
            )
        return found

    def acknowledged(self, since: float) -> int:
        """Return how many of the bystanders' records that were sent after a moment are acknowledged."""
        return self._bystanders.acknowledged(since)

    # --- an attack

    def strike(self, attack: Attack) -> Outcome:
        """Attack, measure, and conclude."""
        return self.judge(attack, lambda: self._run(attack))

    def judge(self, attack: Attack, run: Callable[[], str]) -> Outcome:
        """Call `run`, which attacks the cluster and describes the responses, and judge the cluster afterwards."""
        self.struck.append(attack.name)
        if len(self.struck) == 2:
            self.limits = self.limits.of_series()
        offset, lags = facts.metadata_offset(self.ground.doors), self._lags()
        self._broken = ""
        self._bystanders.failed()
        self._errors()
        self._watch.begin()
        began = time.monotonic()
        answered = run()
        ended = time.monotonic()
        if not self._guarded:
            time.sleep(TAIL_S)
            self._bystanders.wait_still(began, ended + TAIL_S)
        settled_s, nodes, is_warm = self._settle(ended)
        self._warm_since = ended if is_warm else None
        for node, peak in self._watch.peaks().items():
            nodes[node].peak_bytes = peak
            nodes[node].stall_s = self._stall(node, lags)
        sends, reads = self._bystanders.times(began, ended + TAIL_S)
        seen = ClusterObservation(
            nodes=nodes,
            sends=sends,
            reads=reads,
            calm_s=self._calm_s,
            failed=_few(self._bystanders.failed()),
            fenced=[] if self._guarded else facts.fencings(self._running(nodes), offset),
            errors=_few(self._errors()),
            settled_s=settled_s,
            is_warm=is_warm,
            answered=answered,
            seconds=ended - began,
            guarded=self._guarded,
            broken=self._broken,
        )
        return conclude(attack, seen, self.limits)

    def _run(self, attack: Attack) -> str:
        """Run the attack in a separate process, and return a description of the responses."""
        order = msgspec.json.encode(Order(attack.name, self.target))
        command = [sys.executable, "-m", "raftlog_chaos.attacks"]
        self._attacker = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, errors = self._attacker.communicate(order, timeout=attack.within_s + START_S)
        except subprocess.TimeoutExpired:
            return f"still at it after {attack.within_s + START_S:g} s: cut off"
        finally:
            self._attacker.kill()
            self._attacker.wait()
        if self._guarded:
            return "cut off"
        if self._attacker.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            self._broken = f"the attack itself failed: {last[:300]}"
            return "nothing"
        report = msgspec.json.decode(out, type=Report)
        self._broken = report.broken
        return report.answered

    def _guard(self, node: int) -> None:
        """Stop the attack and the cluster when a node is about to exhaust the machine. Called from the watch."""
        self._guarded = f"node {node} took more than {GUARD_BYTES // MIB} MiB"
        if self._attacker is not None:
            self._attacker.kill()
        self.ground.close()

    def _settle(self, ended: float) -> tuple[float | None, dict[int, NodeObservation], bool]:
        """Wait until the nodes are idle again. Return the time it took, the last measurement, and whether only memory
        is high.
        """
        warm = self.limits._replace(rest_bytes=self.limits.warm_bytes)
        while True:
            nodes = self._look()
            passed = time.monotonic() - ended
            if is_settled(nodes, self.limits):
                return passed, nodes, False
            if passed > self.limits.settle_s or any(each.ended for each in nodes.values()):
                return None, nodes, False
            if passed > SOON_S and is_settled(nodes, warm):
                return passed, nodes, True
            time.sleep(LOOK_S)

    def _cool_down(self, ended: float) -> list[str]:
        """Wait until the memory of warm nodes is back; return the faults if it is not, in time."""
        while True:
            nodes = self._look()
            if is_settled(nodes, self.limits):
                return []
            if time.monotonic() - ended > self.limits.settle_s:
                return list(faults_at_rest(nodes, self.limits))
            time.sleep(LOOK_S)

    # --- what nodes say

    def _errors(self) -> list[str]:
        """Return the errors with a traceback that nodes have logged since the last call."""
        return [f"node {node}: {each}" for node, log in self._logs.items() for each in log.unforeseen()]

    def _running(self, nodes: Mapping[int, NodeObservation]) -> dict[int, NodePorts]:
        return {node: doors for node, doors in self.ground.doors.items() if not nodes[node].ended}

    def _lags(self) -> dict[int, facts.Buckets]:
        found = {}
        for node, doors in self.ground.doors.items():
            try:
                found[node] = facts.own_lags(doors)
            except OSError:
                continue
        return found

    def _stall(self, node: int, before: Mapping[int, facts.Buckets]) -> float | None:
        try:
            return facts.longest_s(before.get(node, {}), facts.own_lags(self.ground.doors[node]))
        except OSError:
            return None

    # --- after

    def abandon(self) -> None:
        """End the session at once, whatever its state."""
        self._bystanders.abandon()
        self._watch.stop()
        self.ground.close()

    def close(self) -> Closing:
        """End the session; return what only its end shows."""
        try:
            if self._guarded or all(self.ground.ended(node) for node in self._pids):
                self._bystanders.abandon()
                return Closing([], [])
            kept = [] if self._warm_since is None else self._cool_down(self._warm_since)
            self._bystanders.stop()
            return Closing(self._bystanders.read_back(), kept)
        finally:
            self._watch.stop()
            self.ground.close()


def _by_name(doors: NodePorts, held: Mapping[int, int]) -> dict[str, int]:
    return {name: held[port] for name in get_args(Port) if (port := getattr(doors, name)) in held}


def _few(lines: list[str], most: int = 3) -> list[str]:
    """Return each line once, and the number of lines left out."""
    found = list(dict.fromkeys(lines))
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more such"]


# --- the cluster before its first attack


def prepare(target: Target) -> None:
    """Create the topics and fill the attacked topics. Raises OSError."""
    nodes = sorted(target.nodes)
    led = tuple((index, (*nodes[index:], *nodes[:index])) for index in range(len(nodes)))
    _create(target, TOPIC, led[:PARTITIONS], {"min.insync.replicas": "2"})
    _create(target, target.topic, led, {"min.insync.replicas": "2"})
    _create(target, target.compacted, led, COMPACTED_CONFIGS)
    for topic in (target.topic, target.compacted):
        for index, node in enumerate(nodes):
            with target.line("kafka", node, HONEST) as line:
                for batch in _batches():
                    _write(line, topic, index, batch)
    _find_coordinators(target)


def _find_coordinators(target: Target) -> None:
    """Ask for the coordinators of a group, a transactional id and a share partition, which creates their topics."""
    share = ("group:AAAAAAAAAAAAAAAAAAAAAQ:0",)
    frames = [
        raw(FIND_COORDINATOR, 0, legacy("group")),
        raw(FIND_COORDINATOR, 1, legacy("id") + b"\1"),
        request(FIND_COORDINATOR, 6, "FindCoordinatorRequest", key_type=2, coordinator_keys=share),
    ]
    send_each(target, frames, within_s=READY_S, source=HONEST)


def _create(
    target: Target,
    topic: str,
    partitions: tuple[tuple[int, tuple[int, ...]], ...],
    configs: Mapping[str, str],
) -> None:
    make = request_builders(CREATE_TOPICS, 7)
    wanted = make.CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            make.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in partitions
        ),
        configs=tuple(make.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
    )
    with target.line("kafka", source=HONEST) as line:
        answer = line.request(
            CREATE_TOPICS, 7, "CreateTopicsRequest", READY_S, topics=(wanted,), timeout=int(READY_S * 1000)
        )
    code = None if answer is None else int(answer.topics[0].error_code)
    if code not in (0, ALREADY_THERE):
        raise OSError(f"{topic} could not be created: error {code}")


def _batches() -> Iterator[bytes]:
    for number in range(FILL_BATCHES):
        key, value = b"%d" % number, bytes([number]) * FILL_BYTES
        yield build_batch([new_record(key, value, timestamp=int(time.time() * 1000))])


def _write(line: Line, topic: str, index: int, batch: bytes) -> None:
    make = request_builders(PRODUCE, 9)
    data = make.TopicProduceData(
        name=topic, partition_data=(make.PartitionProduceData(index=index, records=batch),)
    )
    end_at = time.monotonic() + READY_S
    while True:
        answer = line.request(
            PRODUCE,
            9,
            "ProduceRequest",
            READY_S,
            transactional_id=None,
            acks=-1,
            timeout=5000,
            topic_data=(data,),
        )
        code = None if answer is None else int(answer.responses[0].partition_responses[0].error_code)
        if code == 0:
            return
        if time.monotonic() > end_at or answer is None:
            raise OSError(f"{topic}-{index} takes no records: error {code}")
        time.sleep(LOOK_S)


def warm_up(target: Target) -> None:
    """Send each version of each API once to each node, as empty as its schema allows; use the HTTP ports, too."""
    frames = [
        _empty(key, version)
        for key in sorted(ApiKey)
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]

    def warm(node: int) -> None:
        for path in WARM_PATHS:
            facts.ask(target.nodes[node], path)
        send_each(target, frames, node=node, source=HONEST)

    for doors in target.nodes.values():
        facts.register(doors)  # before the frames, some of which elect leaders
    with ThreadPoolExecutor() as threads:
        list(threads.map(warm, target.nodes))


def _empty(api_key: int, version: int) -> bytes:
    make: Any = request_builders(api_key, version)
    message = getattr(make, message_type(api_key, version, "request").__name__)()
    return encode_request(RequestHeader(api_key, version, 1, "warm-up"), message)
