"""The laws of a schema registry, judged from what its clients saw.

- An id is never given to two schemas, and a version of a subject never becomes another schema.
- At the end every node has each registration that was acknowledged, with the same id and version.
- A registration without a response is there once or not at all: no subject has a schema twice.
- A subject has no schema unless a client began to register it.

No client deletes a schema. In between, a look-up may miss a registration: a leader that was paused may not know of its
successor. It may never contradict it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.history import Op

SCHEMAS: Final = frozenset({"register", "look-up", "read-schemas"})
"""The functions of a schema registry."""


class Place(NamedTuple):
    """A schema of a subject. The schema is a number."""

    subject: str
    schema: int


class Seen(NamedTuple):
    """The first evidence of something: its numbers, and the line of the history."""

    what: tuple[int, ...]
    position: int


def check_schemas(history: Iterable[Op], findings: Findings) -> None:
    """Find what breaks the laws."""
    laws = _Laws(findings)
    for position, op in enumerate(history):
        if op.f in SCHEMAS:
            laws.take(op, position)


class _Laws:
    """The state of the checker at a line of the history."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._asked: set[Place] = set()
        self._acked: dict[Place, Seen] = {}
        """Id and version of each acknowledged registration, in the order of their responses."""
        self._ids: dict[int, Seen] = {}
        self._versions: dict[tuple[str, int], Seen] = {}
        self._began: dict[int, int] = {}
        """Of each process with an operation at work: the line of its invocation."""

    def take(self, op: Op, position: int) -> None:
        """Take in a line."""
        if op.type == "invoke":
            self._began[op.process] = position
        for micro in op.value or ():
            if op.f == "register":
                self._take_registration(op, position, *micro[1:])
            elif len(micro) > 2 and micro[2] is not None:
                for subject, version, schema_id, schema in micro[2]:
                    self._take_schema(position, Place(subject, schema), schema_id, version)
                if op.f == "read-schemas" and op.type == "ok":
                    self._take_reading(op, position, micro[1], micro[2])

    def _take_registration(
        self, op: Op, position: int, subject: str, schema: int, found: tuple[int, int] | None = None
    ) -> None:
        place = Place(subject, schema)
        if op.type == "invoke":
            self._asked.add(place)
        if found is not None:
            schema_id, version = found
            self._take_schema(position, place, schema_id, version)
            self._acked.setdefault(place, Seen((schema_id, version), position))

    def _take_schema(self, position: int, place: Place, schema_id: int, version: int) -> None:
        """Compare an id, and a version of a subject, with what was seen of them before."""
        known = self._ids.setdefault(schema_id, Seen((place.schema,), position))
        if known.what != (place.schema,):
            self._find("id-of-two-schemas", "", f"id {schema_id} is of {known.what[0]} and of {place.schema}",
                       known.position, position)  # fmt: skip
        if not place.subject:
            return
        here = (schema_id, place.schema)
        before = self._versions.setdefault((place.subject, version), Seen(here, position))
        if before.what != here:
            said = f"version {version} is (id, schema) {before.what}, and then {here}"
            self._find("version-of-two-schemas", place.subject, said, before.position, position)
        if place not in self._asked:
            self._find("unregistered-schema", place.subject, f"version {version} is {place.schema}", position)

    def _take_reading(self, op: Op, position: int, node: int, found: list[tuple[str, int, int, int]]) -> None:
        """Judge all that a node has at the end."""
        at: dict[Place, list[tuple[int, int]]] = {}
        for subject, version, schema_id, schema in found:
            at.setdefault(Place(subject, schema), []).append((schema_id, version))
        for place, places in at.items():
            if len(places) > 1:
                said = f"node {node} has {place.schema} as (id, version) {sorted(places)}"
                self._find("schema-twice", place.subject, said, position)
        began = self._began.get(op.process, position)
        for place, acked in self._acked.items():
            if acked.position < began and acked.what not in at.get(place, ()):
                said = f"{place.schema} was registered as (id, version) {acked.what}; node {node} has it as "
                self._find(
                    "lost-schema", place.subject, f"{said}{at.get(place, [])}", acked.position, position
                )

    def _find(self, name: str, subject: str, said: str, *positions: int) -> None:
        self._findings.add(name, subject, said, positions=positions)
