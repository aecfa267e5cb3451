"""The laws of growth, each with the curve that shows whether it holds.

constant: the same however much exists, except for noise in timing. logarithmic: at most a constant plus the depth of a
hash tree. It may be less, as for a process among brokers that do not vote. linear: the same cost for each change,
however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log10
from typing import Final, NamedTuple

from raftlog_chaos.growth.control_model import ControlModel
from raftlog_chaos.growth.processes import count_processes
from raftlog_chaos.growth.steps import count_bytes, count_steps
from raftlog_chaos.growth.whole_nodes import PER_TOPIC, NodeSteps, count_nodes

CONSTANT: Final = "constant"
LOGARITHMIC: Final = "logarithmic"
LINEAR: Final = "linear"

SLACK: Final = 1.25
"""A constant may vary by this, and what each of many costs may grow by it."""
DEPTH: Final = 0.3
"""Part by which ten times as much may make a logarithmic count larger."""
SHARED: Final = 30
"""Partitions on the broker that fails, where the others grow."""
BROKERS: Final = 9
EXISTING: Final = 1_000
"""Partitions, where brokers grow."""
PARTITIONS: Final = (10, 100, 1_000)
BROKER_COUNTS: Final = (3, 9, 27)
MANY_PARTITIONS: Final = (10, 100, 1_000, 10_000, 100_000)
MANY_BROKERS: Final = (3, 9, 27, 100)
NODE_PARTITIONS: Final = (10, 1_000)
MANY_NODE_PARTITIONS: Final = (10, 100, 1_000, 10_000)
PROCESS_PARTITIONS: Final = (10, 100)
MANY_PROCESS_PARTITIONS: Final = (10, 100, 1_000, 10_000)
PROCESSES: Final = (3, 5)
MANY_PROCESSES: Final = (3, 5, 9)
GROUPS: Final = (10, 100)
MANY_GROUPS: Final = (10, 100, 1_000, 10_000)


class Curve(NamedTuple):
    """Counts by size. `law`: what they must be as `grows` does."""

    name: str
    unit: str
    grows: str
    law: str
    points: tuple[tuple[int, float], ...]

    def is_lawful(self) -> bool:
        """Say whether the counts follow the law."""
        counts = [count for _, count in self.points]
        if self.law == LINEAR:
            each = [count / size for size, count in self.points]
            return max(each[1:]) <= SLACK * each[0]
        decades = log10(self.points[-1][0] / self.points[0][0])
        if self.law == CONSTANT:
            return max(counts) <= SLACK * min(counts)
        slack = max(SLACK, 1 + DEPTH * decades)
        return all(
            count <= slack * least for count, least in zip(counts, accumulate(counts, min), strict=True)
        )


def control_curves(partitions: Sequence[int], brokers: Sequence[int]) -> list[Curve]:
    """Count what the control plane does; a world for each size."""
    return [
        _curve("change of an ISR", "steps", "partitions", partitions, _change_steps, law=LOGARITHMIC),
        _curve("change of an ISR", "bytes", "partitions", partitions, _change_bytes, law=LOGARITHMIC),
        _curve(
            "topic of 10 partitions created",
            "steps",
            "partitions",
            partitions,
            _creation_steps,
            law=LOGARITHMIC,
        ),
        _curve(
            f"broker with {SHARED} replicas fails",
            "steps",
            "other partitions",
            partitions,
            _failure_steps,
            law=LOGARITHMIC,
        ),
        _curve("controller fails over", "steps", "partitions", partitions, _failover_steps),
        _curve("quiet tick of the controller", "steps", "partitions", partitions, _tick_steps),
        _curve("heartbeat of a broker", "steps", "brokers", brokers, _heartbeat_steps),
        _curve("quiet tick of the controller", "steps", "brokers", brokers, _tick_steps_of_brokers),
        _curve("broker fails", "steps", "its partitions", (30, 300), _failure_steps_of_shared, law=LINEAR),
        _curve("controller fails over", "steps", "brokers", brokers, _failover_steps_of_brokers, law=LINEAR),
    ]


def node_curves(partitions: Sequence[int], groups: Sequence[int]) -> list[Curve]:
    """Count what whole nodes do; a cluster for each size."""
    by_partitions = [(each, count_nodes(partitions=each)) for each in partitions]
    by_groups = [(each, count_nodes(groups=each)) for each in groups]
    return [
        _of_nodes("idle second of a node", "partitions", by_partitions, lambda steps: steps.idle),
        _of_nodes("record with acks=all", "partitions", by_partitions, lambda steps: steps.record),
        _of_nodes("Metadata of one topic", "partitions", by_partitions, lambda steps: steps.metadata),
        _of_nodes(
            "checkpoint files after a record",
            "partitions",
            by_partitions,
            lambda steps: steps.checkpoints,
            law=LINEAR,
        ),
        _of_nodes("idle second of a node", "groups", by_groups, lambda steps: steps.idle),
    ]


def process_curves(partitions: Sequence[int], brokers: Sequence[int]) -> list[Curve]:
    """Count what real processes do, one cluster after the other."""
    by_partitions = [(each, count_processes(partitions=each)) for each in partitions]
    by_brokers = [(each, count_processes(partitions=PER_TOPIC, nodes=each)) for each in brokers]
    curves = []
    for grows, counted in (("partitions", by_partitions), ("brokers", by_brokers)):
        for unit, number in (("calls", 0), ("bytes", 1)):
            points = tuple((size, round(counts[number])) for size, counts in counted)
            curves.append(Curve("idle second of a process", unit, grows, LOGARITHMIC, points))
        points = tuple((size, round(counts.record_calls)) for size, counts in counted)
        curves.append(Curve("record with acks=all", "calls of all processes", grows, LOGARITHMIC, points))
    return curves


def _curve(
    name: str,
    unit: str,
    grows: str,
    sizes: Sequence[int],
    count: Callable[[int], float],
    *,
    law: str = CONSTANT,
) -> Curve:
    return Curve(name, unit, grows, law, tuple((size, count(size)) for size in sizes))


def _of_nodes(
    name: str,
    grows: str,
    counted: Sequence[tuple[int, NodeSteps]],
    of: Callable[[NodeSteps], float],
    *,
    law: str = CONSTANT,
) -> Curve:
    return Curve(name, "steps", grows, law, tuple((size, round(of(steps))) for size, steps in counted))


def _model(partitions: int, brokers: int = BROKERS) -> ControlModel:
    """A control plane at rest: what was made is long committed, and everybody was heard of since."""
    model = ControlModel(brokers)
    model.create(partitions, model.brokers)
    model.shrink_isr("topic-0")
    for broker_id in model.brokers:
        model.heartbeat(broker_id)
    return model


def _change_steps(partitions: int) -> float:
    model = _model(partitions)
    before = model.changes
    steps = count_steps(lambda: model.shrink_isr("topic-0")).total()
    assert model.changes == before + 1, "a broker was told of that change alone"
    return steps


def _change_bytes(partitions: int) -> float:
    model = _model(partitions)
    return count_bytes(lambda: model.shrink_isr("topic-0"))


def _creation_steps(partitions: int) -> float:
    model = _model(partitions)
    return count_steps(lambda: model.create(10, model.brokers)).total()


def _failure_steps(partitions: int) -> float:
    model = _model(partitions, BROKERS - 1)
    return _failure_of_newcomer(model, SHARED)


def _failure_steps_of_shared(shared: int) -> float:
    return _failure_of_newcomer(_model(EXISTING, BROKERS - 1), shared)


def _failure_of_newcomer(model: ControlModel, shared: int) -> float:
    victim = model.join()
    model.create(shared, (victim, 1, 2))
    model.shrink_isr("topic-0")
    steps = count_steps(lambda: model.kill(victim)).total()
    states = [state for topic in model.image.topics.values() for state in topic.partitions]
    assert all(state.leader != victim and victim not in state.isr for state in states)
    return steps


def _failover_steps(partitions: int) -> float:
    model = _model(partitions)
    return count_steps(model.fail_over).total()


def _failover_steps_of_brokers(brokers: int) -> float:
    model = _model(EXISTING, brokers)
    return count_steps(model.fail_over).total()


def _heartbeat_steps(brokers: int) -> float:
    model = _model(EXISTING, brokers)
    return count_steps(lambda: model.heartbeat(2)).total()


def _tick_steps(partitions: int) -> float:
    model = _model(partitions)
    return count_steps(lambda: model.active.tick(model.now)).total()


def _tick_steps_of_brokers(brokers: int) -> float:
    model = _model(EXISTING, brokers)
    return count_steps(lambda: model.active.tick(model.now)).total()
