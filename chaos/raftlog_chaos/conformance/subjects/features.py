"""Feature levels (UpdateFeatures), and the versions in ApiVersions."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import TIMEOUT_MS, Session

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
Update = tuple[str, int, int]
"""A feature, its level, and the type of the upgrade or downgrade."""
FEATURES: Final = ("metadata.version", "group.version", "transaction.version")
"""The features that are observed."""

UPDATES: Final[Mapping[str, Sequence[Update]]] = {
    "none": [],
    "an unknown feature": [("no.such.feature", 1, UPGRADE)],
    "an unknown feature to 0": [("no.such.feature", 0, SAFE_DOWNGRADE)],
    "an empty name": [("", 1, UPGRADE)],
    "the kraft version": [("kraft.version", 1, UPGRADE)],
    "above what is supported": [("group.version", 100, UPGRADE)],
    "metadata above what is supported": [("metadata.version", 1000, UPGRADE)],
    "a level of -1": [("group.version", -1, UPGRADE)],
    "an unknown kind": [("group.version", 1, 0)],
    "another unknown kind": [("group.version", 1, 4)],
    "as it is": [("group.version", 1, UPGRADE)],
    "as it is, downwards": [("group.version", 1, SAFE_DOWNGRADE)],
    "as it is, unsafely": [("group.version", 1, UNSAFE_DOWNGRADE)],
    "down by an upgrade": [("group.version", 0, UPGRADE)],
    "down": [("group.version", 0, SAFE_DOWNGRADE)],
    "transactions down by an upgrade": [("transaction.version", 0, UPGRADE)],
    "transactions down": [("transaction.version", 0, SAFE_DOWNGRADE)],
    "transactions to 1": [("transaction.version", 1, SAFE_DOWNGRADE)],
    "twice": [("group.version", 1, UPGRADE), ("group.version", 1, UPGRADE)],
    "good and bad": [("group.version", 1, UPGRADE), ("no.such.feature", 1, UPGRADE)],
    "two bad ones": [("group.version", 100, UPGRADE), ("no.such.feature", 1, UPGRADE)],
}


def update(s: Session, updates: Sequence[Update], version: int, **fields: Any) -> None:
    """Send UpdateFeatures, and observe the response."""
    asked = [
        {
            "feature": name,
            "max_version_level": level,
            **({"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}),
        }
        for name, level, kind in updates
    ]
    s.ask("UpdateFeatures", version, feature_updates=asked, timeout=TIMEOUT_MS, **fields)


@history(UPDATES)
def validated(s: Session, updates: Sequence[Update]) -> None:
    """An update is refused as a whole, if at all; validated, it changes no level."""
    for version in (1, 2):
        update(s, updates, version, validate_only=True)


REFUSED: Final = (
    *("none", "an unknown feature", "above what is supported", "as it is", "down by an upgrade", "twice"),
    *("good and bad", "two bad ones"),
)


@history({f"{row} in v{version}": (row, version) for row in REFUSED for version in range(3)})
def update_in(s: Session, row: tuple[str, int]) -> None:
    """Versions 0 and 1 answer feature by feature, version 2 as a whole."""
    name, version = row
    update(s, UPDATES[name], version)


def levels(s: Session) -> Mapping[str, int]:
    """Return the finalized levels of features."""
    answer = s.query("ApiVersions", 4, client_software_name="conformance", client_software_version="1.0")
    return {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}


@history({"group.version": ("group.version", 1), "transaction.version": ("transaction.version", 2)})
def down_and_up(s: Session, row: tuple[str, int]) -> None:
    """A feature goes down to 0, where it is not shown any more, and up again."""
    name, level = row
    try:
        update(s, [(name, 0, SAFE_DOWNGRADE)], 2)
        s.wait("it is down", lambda: levels(s).get(name, 0) == 0)
    finally:
        update(s, [(name, level, UPGRADE)], 2)
        s.wait("it is up", lambda: levels(s).get(name) == level)


# --- ApiVersions

TELEMETRY: Final = (71, 72)
"""The APIs that raftlog lists while there is a subscription to client metrics."""


@history({f"v{version}": version for version in range(5)})
def versions_in(s: Session, version: int) -> None:
    """All versions are answered; the APIs of clients are there in Kafka's versions."""
    answer = s.query(
        "ApiVersions", version, client_software_name="conformance", client_software_version="1.0"
    )
    found = {
        each["api_key"]: f"{each['min_version']} to {each['max_version']}"
        for each in answer["api_keys"]
        if each["api_key"] not in TELEMETRY
    }
    s.observe("the error", answer["error_code"])
    s.observe("the APIs", {str(key): found[key] for key in sorted(found)})
    if version >= 3:
        shown = {
            field: {each["name"]: each for each in answer[field] if each["name"] in FEATURES}
            for field in ("supported_features", "finalized_features")
        }
        s.observe("the features", shown)


NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "empty": ("", ""),
    "no name": ("", "1"),
    "no version": ("a", ""),
    "a blank": ("a b", "1"),
    "a dash first": ("-a", "1"),
    "a dash last": ("a-", "1"),
    "a dot": ("a.b-c", "1.0-rc.1"),
    "an underscore": ("a_b", "1"),
    "an umlaut": ("ä", "1"),
    "long": ("x" * 1000, "1"),
}


@history(NAMES)
def client_software(s: Session, row: tuple[str, str]) -> None:
    """A client's name has letters, digits, dots and dashes, and begins and ends with a letter or digit."""
    name, version = row
    answer = s.query("ApiVersions", 3, client_software_name=name, client_software_version=version)
    s.observe("the error", answer["error_code"])
    s.observe("are there APIs", bool(answer["api_keys"]))


@history({str(version): version for version in (99, 2**15 - 1, -1)})
def unsupported_version(s: Session, version: int) -> None:
    """A version of ApiVersions that is not known is answered in version 0, with the versions of that API."""
    body = struct.pack(">hhihb", 18, version, 7, -1, 0)
    frame = s.ask_bytes(struct.pack(">i", len(body)) + body, f"ApiVersions v{version}")
    if frame:
        correlation, error, count = struct.unpack_from(">ihi", frame)
        entries = [struct.unpack_from(">hhh", frame, 10 + 6 * number) for number in range(count)]
        s.observe("the answer", [correlation, error, [list(each) for each in entries if each[0] == 18]])


UNKNOWN: Final[Mapping[str, tuple[int, int]]] = {
    "an unknown API": (999, 0),
    "an API of -1": (-1, 0),
    "a version that is too new": (3, 99),
    "a version that is too old": (19, 0),
    "a version of -1": (3, -1),
    "a controller's API": (62, 0),
    "an API that is gone": (4, 0),
}


@history(UNKNOWN)
def unsupported_request(s: Session, row: tuple[int, int]) -> None:
    """A request that a broker does not know closes the connection."""
    body = struct.pack(">hhih", *row, 7, -1)
    s.ask_bytes(struct.pack(">i", len(body)) + body, "a request that is not known")
