"""The largest requests of the schema registry: the largest of each route, and requests with a large schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final
from urllib.parse import urlencode

from raftlog.admin.schema_registry.server import ROUTES
from raftlog.schemas.schema import Kind
from raftlog_chaos.turns.routes import Asked, largest_calls
from raftlog_chaos.turns.schemas import SUBJECT, large_schemas

NEWEST: Final = "subject-of-large-schemas"
VERBOSE: Final = urlencode({"verbose": "true", "normalize": "true"})


def registry_calls(guid: str) -> Iterator[Asked]:
    """Yield the largest requests of all routes, deletions last. `guid` is that of schema 1."""
    path = {"subject": SUBJECT, "version": "latest", "id": "1", "guid": guid}
    yield from chain.from_iterable(_of_text(*each) for each in large_schemas())
    for route in sorted(ROUTES, key=lambda each: each.method == "DELETE"):
        for call in largest_calls(route, path):
            yield call._replace(what=f"registry: {call.what}")


def _of_text(what: str, kind: Kind, limit: str, body: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield the requests with a schema: registered, found, compared with itself and with a thousand others."""
    subject = f"{NEWEST}-{kind}-{what.replace(' ', '-')}"
    sent = json.dumps({"schemaType": kind, **body}, ensure_ascii=False).encode()
    for does, path in (
        ("register", f"/subjects/{subject}/versions"),
        ("normalize and register", f"/subjects/{subject}-normal/versions?{VERBOSE}"),
        ("find", f"/subjects/{subject}?{VERBOSE}"),
        ("compare", f"/compatibility/subjects/{subject}/versions?{VERBOSE}"),
        ("compare with all versions", f"/compatibility/subjects/{SUBJECT}/versions?{VERBOSE}"),
    ):
        yield Asked(f"registry: {does} {kind} {what}", limit, "POST", path, lambda: sent)
