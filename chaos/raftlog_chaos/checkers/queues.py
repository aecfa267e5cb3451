"""The laws of a share group (KIP-932), judged from what its members saw.

- A record that was accepted or rejected is not delivered again, once the member has the response.
- No record is lost: it is delivered until a member accepts or rejects it, or until its delivery limit is reached.
- While a member has the lock of a record, no other member gets it.
- A delivery count is 1 to the limit. After a release that was confirmed, the next one is higher.
- The start offset never goes back.

A member does not see who delivered a record. A replaced leader that does not know of its successor may still deliver
records that the successor has completed, as in Apache Kafka. The share coordinator fences its writes, so no
acknowledgement of such a delivery succeeds. Hence a delivery counts as evidence if its own acknowledgement succeeded,
or if it was fetched so late that every broker knows the leader (`QueueTerms.stale_s`).

A stock client may return a record from a fetch that an earlier, empty poll began. So a delivery was made, at the
earliest, when the first poll began that followed the member's last records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any, Final, NamedTuple

from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.history import Op, QueueTerms, Value

QUEUE: Final = frozenset({"join", "acquire", "acknowledge", "start-offsets"})
"""The functions of share groups."""
DEFAULTS: Final = QueueTerms(lock_s=30.0, limit=5, stale_s=15.0)
"""Apache Kafka's defaults, for a history that names no terms."""
SETTLES: Final = frozenset({"accept", "reject"})
NS: Final = 1_000_000_000


class Place(NamedTuple):
    """A record, as one group sees it."""

    group: str
    key: str
    offset: int


class Acknowledgement:
    """An answer of a member to a delivery. Without a response its outcome stays unknown: "info"."""

    __slots__ = ("began_ns", "ended_ns", "kind", "outcome", "position")

    def __init__(self, kind: str, began_ns: int, position: int) -> None:
        self.kind = kind
        self.began_ns = began_ns
        self.ended_ns = began_ns
        self.outcome = "info"
        self.position = position


class Delivery:
    """A record that a member got. Its leader delivered it between `since_ns` and `at_ns`."""

    __slots__ = ("acknowledgement", "at_ns", "count", "position", "process", "since_ns", "value")

    def __init__(
        self, process: int, value: Value, count: int, *, since_ns: int, at_ns: int, position: int
    ) -> None:
        self.process = process
        self.value = value
        self.count = count
        self.since_ns = since_ns
        self.at_ns = at_ns
        self.position = position
        self.acknowledgement: Acknowledgement | None = None

    def confirmed(self) -> Acknowledgement | None:
        """Return the acknowledgement if it succeeded."""
        said = self.acknowledgement
        return said if said is not None and said.outcome == "ok" else None

    @property
    def positions(self) -> tuple[int, ...]:
        said = self.acknowledgement
        return (self.position,) if said is None else (self.position, said.position)


class _StartOffset(NamedTuple):
    ended_ns: int
    offset: int
    position: int


class Queues:
    """Takes a history line by line, then judges it."""

    def __init__(self, terms: QueueTerms, findings: Findings) -> None:
        self._terms = terms
        self._findings = findings
        self._lock_ns = int(terms.lock_s * NS)
        self._stale_ns = int(terms.stale_s * NS)
        self._deliveries: dict[Place, list[Delivery]] = {}
        self._held: dict[int, dict[Place, Delivery]] = {}
        """Each member's last delivery of a record."""
        self._since: dict[int, int] = {}
        """When a member began to poll for its next records."""
        self._began: dict[int, int] = {}
        self._asked: dict[int, list[Acknowledgement]] = {}
        """The acknowledgements that a member waits for, in the order of its request."""
        self._sent: dict[str, dict[int, tuple[Value, int]]] = {}
        """Value and line of each acknowledged send, by key and offset."""
        self._joined: dict[str, set[str]] = {}
        self._starts: dict[tuple[str, str], list[_StartOffset]] = {}
        """The start offsets that were seen, each higher than all before it."""

    def take(self, position: int, op: Op) -> None:
        """Take in the next line."""
        if op.type == "invoke":
            self._began[op.process] = op.time_ns
        if op.f == "send" and op.type != "invoke":
            self._note_sends(position, op)
        elif op.f == "join" and op.type in ("ok", "info"):
            self._joined.setdefault(op.group, set()).update(op.value or ())
        elif op.f == "acquire":
            self._acquire(position, op)
        elif op.f == "acknowledge":
            self._acknowledge(position, op)
        elif op.f == "start-offsets" and op.type == "ok":
            self._see_starts(position, op)

    def _note_sends(self, position: int, op: Op) -> None:
        for micro in op.value or ():
            offset, value = micro[2] if isinstance(micro[2], list | tuple) else (None, micro[2])
            if offset is not None:
                self._sent.setdefault(micro[1], {})[offset] = (value, position)

    # -- members

    def _acquire(self, position: int, op: Op) -> None:
        if op.type == "invoke":
            self._since.setdefault(op.process, op.time_ns)
        elif op.type == "ok":
            for place, value, count in _acquired(op):
                delivery = Delivery(
                    op.process,
                    value,
                    count,
                    since_ns=self._since.get(op.process, op.time_ns),
                    at_ns=op.time_ns,
                    position=position,
                )
                self._deliveries.setdefault(place, []).append(delivery)
                self._held.setdefault(op.process, {})[place] = delivery
            if any(found for _, found in op.value or ()):
                self._since.pop(op.process, None)

    def _acknowledge(self, position: int, op: Op) -> None:
        if op.type == "invoke":
            self._asked[op.process] = asked = []
            held = self._held.get(op.process, {})
            for kind, key, offsets in (micro[:3] for micro in op.value or ()):
                for offset in offsets:
                    said = Acknowledgement(kind, op.time_ns, position)
                    asked.append(said)
                    if (delivery := held.pop(Place(op.group, key, offset), None)) is not None:
                        delivery.acknowledgement = said
            return
        asked = self._asked.pop(op.process, [])
        outcomes = [micro[3] if len(micro) > 3 else "info" for micro in op.value or () for _ in micro[2]]
        for said, outcome in zip(asked, outcomes, strict=False):
            said.outcome, said.ended_ns, said.position = outcome, op.time_ns, position

    def _see_starts(self, position: int, op: Op) -> None:
        for key, offset in (each for micro in op.value or () for each in micro[1].items()):
            seen = self._starts.setdefault((op.group, key), [])
            before_ns = self._began.get(op.process, op.time_ns) - self._stale_ns
            known = bisect_left(seen, before_ns, key=lambda each: each.ended_ns)
            if known and seen[known - 1].offset > offset:
                before = seen[known - 1]
                self._findings.add(
                    "start-offset-back",
                    key,
                    f"{op.group} began at {before.offset}, then at {offset}",
                    positions=(before.position, position),
                )
            if not seen or offset > seen[-1].offset:
                seen.append(_StartOffset(op.time_ns, offset, position))

    # -- the verdict

    def finish(self) -> None:
        """Judge everything that was taken in."""
        for place, deliveries in self._deliveries.items():
            self._check_values(place, deliveries)
            self._check_counts(place, deliveries)
            for first, second in permutations(deliveries, 2):
                self._check_pair(place, first, second)
        for group, keys in self._joined.items():
            for key in keys:
                self._check_delivered(group, key)

    def _blame(self, name: str, place: Place, text: str, *deliveries: Delivery) -> None:
        self._findings.add(
            name,
            place.key,
            f"offset {place.offset} of {place.group}: {text}",
            positions=[position for each in deliveries for position in each.positions],
            about=tuple(dict.fromkeys(each.value for each in deliveries)),
        )

    def _check_values(self, place: Place, deliveries: list[Delivery]) -> None:
        sent = self._sent.get(place.key, {}).get(place.offset)
        for each in deliveries:
            if sent is not None and each.value != sent[0]:
                text = f"{sent[0]!r} was sent there, and {each.value!r} delivered"
                self._blame("inconsistent-offsets", place, text, each)

    def _check_counts(self, place: Place, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            if not 1 <= each.count <= self._terms.limit:
                text = f"it was delivered with count {each.count}; the limit is {self._terms.limit}"
                self._blame("delivery-count", place, text, each)

    def _check_pair(self, place: Place, first: Delivery, second: Delivery) -> None:
        said = first.confirmed()
        if said is None:
            return
        by = f"process {first.process}"
        if self._was_made_after(second, said.ended_ns):
            if said.kind in SETTLES:
                text = f"{by} has {said.kind}ed it, then process {second.process} got it"
                self._blame("delivered-again", place, text, first, second)
            elif second.count <= first.count:
                text = f"{by} has released it with count {first.count}, then it came with {second.count}"
                self._blame("delivery-count", place, text, first, second)
        elif (
            second.process != first.process
            and second.confirmed() is not None
            and said.ended_ns <= first.since_ns + self._lock_ns
            and first.at_ns <= second.since_ns
            and second.at_ns <= said.began_ns
        ):
            text = f"{by} had its lock when process {second.process} got it"
            self._blame("two-holders", place, text, first, second)

    def _was_made_after(self, delivery: Delivery, at_ns: int) -> bool:
        """Return whether the leader delivered it after that time, and was the leader or must have known that it was
        not.
        """
        if delivery.confirmed() is None:
            at_ns += self._stale_ns
        return delivery.since_ns > at_ns

    def _check_delivered(self, group: str, key: str) -> None:
        for offset, (value, position) in self._sent.get(key, {}).items():
            deliveries = self._deliveries.get(Place(group, key, offset), [])
            count = max((each.count for each in deliveries), default=0)
            if count < self._terms.limit and not any(map(_may_have_settled, deliveries)):
                text = f"offset {offset} of {group}: delivered {count} times, never accepted or rejected"
                positions = [position, *(line for each in deliveries for line in each.positions)]
                self._findings.add("undelivered", key, text, positions=positions, about=(value,))


def check_queues(history: Iterable[Op], terms: QueueTerms | None, findings: Findings) -> None:
    """Judge what members of share groups saw. A history without any adds no finding."""
    queues = Queues(terms or DEFAULTS, findings)
    for position, op in enumerate(history):
        queues.take(position, op)
    queues.finish()


def _acquired(op: Op) -> Iterator[tuple[Place, Value, int]]:
    """Yield each record of a completed acquire, with its value and delivery count."""
    found: dict[str, list[Any]]
    for _, found in op.value or ():
        for key, records in found.items():
            for offset, value, count in records:
                yield Place(op.group, key, offset), value, count


def _may_have_settled(delivery: Delivery) -> bool:
    said = delivery.acknowledgement
    return said is not None and said.kind in SETTLES and said.outcome != "fail"
