"""The largest request of each HTTP route: a body as large as its type and `Limits` allow, and full queries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

import msgspec

from raftlog.admin.limits import Limits
from raftlog.admin.route import Route
from raftlog_chaos.turns.largest import HELD
from raftlog_chaos.turns.states import WIDE

BODY_BYTES: Final = Limits().body_bytes - 1_000
LONGEST_ARRAY: Final = 200_000
LONG_STRING: Final = 200

LARGEST_PAGE: Final = {"page_size": 10_000}
HURTFUL: Final[Mapping[str, bytes]] = {
    "numbers with fractions": b"1.5,",
    "whole numbers with fractions": b"1.0,",
    "exponents": b"1e18,",
    "short strings": b'"",',
    "escapes": b'"\\\\\\\\",',
    "braces": b"{},",
    "brackets without an end": b"[",
    "quotes without an end": b'"\\',
    "digits": b"9",
}
"""Parts of an array, as many as a body has room for, behind numbers of the body that have a fraction of zero."""
NO_LIMIT_IN_IT: Final[tuple[Mapping[str, Any], ...]] = ({},)
QUERIES: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "Page": (LARGEST_PAGE,),
    "AnyQuery": ({"limit": 10_000, "normalize": "true"}, {"deleted": "true", "permanent": "true"}),
    "MetadataQuery": ({"key": ["k"] * 700, "value": ["v"] * 700},),
    "AclQuery": (LARGEST_PAGE, {**LARGEST_PAGE, "resource_name": "prefix-1", "pattern_type": "MATCH"}),
    "AclDeletionQuery": ({"resource_type": "TOPIC", "resource_name": "prefix-1", "pattern_type": "MATCH"},),
    "NewDecommission": ({},),
    "RecordsQuery": (
        {"offset": 0, "max_records": 1000, "max_bytes": 4 << 20},
        {"offset": 299_999, "max_records": 1000, "max_bytes": 4 << 20},
        {"timestamp": 1, "max_records": 1000, "max_bytes": 4 << 20},
        {"offset": 0, "max_records": 1000, "max_bytes": 4 << 20, "decode": "auto"},
    ),
    "Starts": (
        {"max_records": 1000, "start": ",".join(f"{each}:earliest" for each in range(50))},
        {"max_records": 1000, "start": "0:-1"},
        {"max_records": 1000, "start": "0:earliest", "decode": "msgpack"},
    ),
    "Scanned": (
        {"max_records": 1_000_000},
        {"text": "nothing like it", "decode": "msgpack"},
        {"max_records": 1_000_000, "decode": "hex", "start": "@1"},
    ),
    "WhichContent": ({"offset": 299_999}, {"offset": 0}),
    "GroupsPage": ({"most": 200}, {"most": 200, "topic": WIDE}),
    "MeasuresPage": ({"most": 500},),
    "Window": ({"most": 1000, "measure": "true"},),
    "Whose": ({"topic": WIDE}, {"group": "any"}),
    "WhichMetrics": ({"family": "all"}, {"family": "kafka"}),
    "Wanted": ({"unused_ms": 0}, {"unused_ms": 0, "topic": WIDE}),
    "Question": ({"operation": "READ", "resource": f"TOPIC:{WIDE}", "principal": "User:user-1"},),
    "After": ({"after_ms": 0},),
    "OffsetQuery": NO_LIMIT_IN_IT,
    "WhichDirectory": NO_LIMIT_IN_IT,
    "WhichNode": NO_LIMIT_IN_IT,
    "WhichReadiness": ({"caught_up": "true"},),
    "Margin": ({"margin": 2},),
}
"""Keyed by the name of the query's type."""


def _no_body() -> None:
    """Return the body of a request without."""


class Asked(NamedTuple):
    """One request of a route."""

    what: str
    limit: str
    method: str
    path: str
    make_body: Callable[[], bytes | None] = _no_body


def name_of(route: Route) -> str:
    """Return a route's name in the table."""
    return f"{route.method} {route.template}"


def largest_calls(route: Route, path: Mapping[str, str]) -> Iterator[Asked]:
    """Yield the largest requests of a route with the parameters of `path`."""
    filled = route.template
    for name, value in path.items():
        filled = filled.replace("{" + name + "}", value)
    for query in NO_LIMIT_IN_IT if route.query is None else QUERIES[route.query.__name__]:
        target = filled + (f"?{urlencode(query, doseq=True)}" if query else "")
        what = f"{name_of(route)} {urlencode(query, doseq=True)[:40]}"
        if route.body is None:
            yield Asked(what, _limit(query), route.method, target)
            continue
        named = "record_bytes" if route.streams else "body_bytes"
        most = getattr(Limits(), named)
        limit = f"{named} {most}"
        for string in ("x", "x" * LONG_STRING):
            make = partial(_body, route.body, string)
            yield Asked(f"{what} strings of {len(string)}", limit, route.method, target, make)
        for shape, part in HURTFUL.items():
            make = partial(_hurtful, route.body, part, most - 1_000)
            yield Asked(f"{what} {shape}", limit, route.method, target, make)


def _limit(query: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in query.items() if "start" not in name) or HELD


def _body(kind: Any, string: str) -> bytes:
    """Return a body in which every array is as long as it may be."""
    few, more = (len(json.dumps(_value(kind, length, string))) for length in (10, 20))
    length = 10 + 10 * (BODY_BYTES - few) // max(1, more - few)
    return json.dumps(_value(kind, max(1, min(length, LONGEST_ARRAY)), string)).encode()


def _hurtful(kind: Any, part: bytes, most: int) -> bytes:
    """Return a body with its numbers as fractions of zero, and behind them an array only of `part`."""
    body = re.sub(rb"(?<=[ \[])-?[0-9]+(?=[],}])", rb"\g<0>.0", json.dumps(_value(kind, 1, "x")).encode())
    body = body.removesuffix(b"}") + b', "more": [0.'
    return body + b"0," + part * ((most - len(body)) // len(part)) + b"0]}"


def _value(kind: Any, length: int, string: str) -> Any:
    """Return a value of a type, as JSON has it."""
    origin = get_origin(kind)
    if hasattr(kind, "__metadata__"):
        bounds = [each for each in kind.__metadata__ if isinstance(each, msgspec.Meta)]
        most = min((each.max_length for each in bounds if each.max_length is not None), default=length)
        least = max((int(each.ge) for each in bounds if each.ge is not None), default=1)
        found = _value(get_args(kind)[0], min(length, most), string)
        return least if isinstance(found, int) and not isinstance(found, bool) else found
    if origin in (list, tuple):
        return [_value(get_args(kind)[0], 1, string) for _ in range(length)]
    if origin is dict:
        return {f"{string}-{number}": _value(get_args(kind)[1], 1, string) for number in range(length)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return {each.encode_name: _value(each.type, length, string) for each in fields}
    options = get_args(kind)
    if options and origin is not None:
        first = options[0]
        return (
            first if not isinstance(first, type) and not get_origin(first) else _value(first, length, string)
        )
    return {int: 1, bool: True, float: 1.0, type(None): None}.get(kind, string)
