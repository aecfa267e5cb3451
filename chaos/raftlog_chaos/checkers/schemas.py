"""The laws of a schema registry, judged from what its clients saw. No client deletes a schema.

- An id belongs to one schema, and a schema has one id, in every subject.
- A version of a subject is one schema, and a schema is one version of a subject.
- What a response has shown is in every reading that begins later, with the same id and version.
- A schema exists only if a client began to register it before, and not if all these registrations failed.
- A schema gets a higher id, and a higher version, than all that were known before its registration began.
- A reading has the versions of a subject from 1 on, without a gap.
- Each node that was asked is read after the last acknowledged registration. Without that, losses are not noticed.

A registration without a response may have happened or not. In between, a look-up may miss a registration: a leader that
was paused may not know of its successor. It may never contradict it.

Ids and versions obey the same laws. So the checker treats ids as the versions of a subject that has every schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.history import Op

SCHEMAS: Final = frozenset({"register", "look-up", "read-schemas"})
"""The functions of a schema registry."""
IDS: Final = ""
"""The subject whose versions are the ids."""
BEFORE_ALL: Final = -1
"""The position before the first line."""


class Place(NamedTuple):
    """A schema in a subject. The schema is a number."""

    subject: str
    schema: int


class Version(NamedTuple):
    """A schema as a version of a subject, or as an id."""

    subject: str
    number: int
    schema: int

    def __str__(self) -> str:
        return f"schema {self.schema} as {'version' if self.subject else 'id'} {self.number}"


class Seen(NamedTuple):
    """The first evidence of a number, and its line of the history."""

    number: int
    position: int


class Row(NamedTuple):
    """A line of a registry's answer. A look-up by id knows neither subject ("") nor version (0)."""

    subject: str
    version: int
    id: int
    schema: int

    def versions(self) -> list[Version]:
        """Return what this row shows: an id, and a version if the subject is known."""
        found = [Version(IDS, self.id, self.schema)]
        return [Version(self.subject, self.version, self.schema), *found] if self.subject else found


def check_schemas(history: Iterable[Op], findings: Findings) -> None:
    """Find what breaks the laws."""
    laws = _Laws(findings)
    for position, op in enumerate(history):
        if op.f in SCHEMAS:
            laws.take(op, position)
    laws.finish()


class _Laws:
    """Takes a history line by line, then judges what only the whole history shows."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._began: dict[int, int] = {}
        """The line of each process's last invocation."""
        self._registrations: dict[Place, set[int]] = {}
        """The lines that began a registration, without failed registrations."""
        self._acked_at = BEFORE_ALL
        self._shown: dict[Version, int] = {}
        """The line that first showed it."""
        self._schemas: dict[tuple[str, int], Seen] = {}
        """The first schema of a version."""
        self._numbers: dict[Place, Seen] = {}
        """The first version of a schema."""
        self._highest: dict[str, Seen] = {}
        """The highest version so far, by subject."""
        self._floors: dict[Place, Seen] = {}
        """The highest version of the subject when the first registration of a schema began."""
        self._read: dict[int, int] = {}
        """The line that began the last complete reading, of each node that was asked."""

    def take(self, op: Op, position: int) -> None:
        """Judge the next line."""
        if op.type == "invoke":
            self._began[op.process] = position
        for micro in op.value or ():
            if op.f == "register":
                self._take_registration(op, position, *micro[1:])
                continue
            self._read.setdefault(micro[1], BEFORE_ALL)
            if len(micro) > 2 and micro[2] is not None:
                rows = [Row(*each) for each in micro[2]]
                if op.f == "read-schemas" and op.type == "ok":
                    self._check_reading(op, position, micro[1], rows)
                for row in rows:
                    self._show(row, position)

    def finish(self) -> None:
        """Find schemas that no client registered, and nodes that were not read."""
        for version, position in self._shown.items():
            began = self._registrations.get(Place(version.subject, version.schema), ())
            if min(began, default=position) >= position:
                self._find("unregistered-schema", version, f"there is {version}", position)
        if not self._registrations:
            return
        unread = [f"node {node} was" for node, began in self._read.items() if began <= self._acked_at]
        for nodes in unread if self._read else ["no node was"]:
            explanation = f"{nodes} not read after the last acknowledged registration"
            self._findings.add("unread-schemas", "", explanation, positions=[self._acked_at])

    def _take_registration(
        self, op: Op, position: int, subject: str, schema: int, found: tuple[int, int] | None = None
    ) -> None:
        places = (Place(subject, schema), Place(IDS, schema))
        if op.type == "invoke":
            self._begin(places, position)
            return
        began = self._began.get(op.process, BEFORE_ALL)
        is_asked = began in self._registrations.get(places[0], ())
        if op.type == "fail":
            for place in places:
                self._registrations.get(place, set()).discard(began)
        if op.type == "ok":
            self._acked_at = position
            if not is_asked or found is None or min(found) < 1:
                explanation = f"the response to a registration says: schema {schema}, (id, version) {found}"
                self._findings.add("unusable-response", subject, explanation, positions=[began, position])
        if found is not None:
            schema_id, number = found
            self._show(Row(subject, number, schema_id, schema), position)

    def _begin(self, places: Iterable[Place], position: int) -> None:
        for place in places:
            self._registrations.setdefault(place, set()).add(position)
            self._floors.setdefault(place, self._highest.get(place.subject, Seen(0, BEFORE_ALL)))

    def _show(self, row: Row, position: int) -> None:
        for version in row.versions():
            if version not in self._shown:
                self._shown[version] = position
                self._compare(version, position)

    def _compare(self, version: Version, position: int) -> None:
        """Compare a version that was not shown before with all others of its subject."""
        subject, number, schema = version
        is_id = subject == IDS
        first = self._schemas.setdefault((subject, number), Seen(schema, position))
        if first.number != schema:
            name = "id-of-two-schemas" if is_id else "version-of-two-schemas"
            explanation = f"{Version(subject, number, first.number)}, and then {version}"
            self._find(name, version, explanation, first.position, position)
        first = self._numbers.setdefault(Place(subject, schema), Seen(number, position))
        if first.number != number:
            name = "schema-of-two-ids" if is_id else "schema-twice"
            explanation = f"{Version(subject, first.number, schema)}, and then {version}"
            self._find(name, version, explanation, first.position, position)
        floor = self._floors.get(Place(subject, schema), Seen(0, BEFORE_ALL))
        if number < floor.number:
            explanation = f"{version}, though {floor.number} was known before its registration began"
            self._find("schema-order", version, explanation, floor.position, position)
        if number > self._highest.get(subject, Seen(0, BEFORE_ALL)).number:
            self._highest[subject] = Seen(number, position)

    def _check_reading(self, op: Op, position: int, node: int, rows: list[Row]) -> None:
        """Compare all that a node has with what was shown before."""
        began = self._read[node] = self._began.get(op.process, position)
        found = {version for row in rows for version in row.versions()}
        for version, shown_at in self._shown.items():
            if shown_at < began and version not in found:
                explanation = f"{version} was shown before, and node {node} lacks it"
                self._find("lost-schema", version, explanation, shown_at, position)
        for subject in sorted({row.subject for row in rows}):
            numbers = sorted({row.version for row in rows if row.subject == subject})
            if numbers != list(range(1, len(numbers) + 1)):
                explanation = f"node {node} has the versions {numbers}"
                self._findings.add("missing-version", subject, explanation, positions=[position])

    def _find(self, name: str, version: Version, explanation: str, *positions: int) -> None:
        self._findings.add(name, version.subject, explanation, about=(version.schema,), positions=positions)
