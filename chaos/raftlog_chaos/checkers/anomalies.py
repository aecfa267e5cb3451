"""The table of anomalies: what each means and when it makes a history invalid.

Names and rules come from Jepsen's Kafka workload; `ours` marks additions.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from raftlog_chaos.history import Header


class Invalid(Enum):
    """The conditions under which an anomaly condemns a history."""

    ALWAYS = "always"
    WITHOUT_SUBSCRIBE = "unless consumers subscribe"
    """A rebalance between two polls moves a consumer's position."""
    NEVER = "never"
    """Kafka does not isolate writes from each other."""


class Anomaly(NamedTuple):
    """One row."""

    meaning: str
    invalid: Invalid = Invalid.ALWAYS
    ours: bool = False


ANOMALIES: dict[str, Anomaly] = {
    "lost-write": Anomaly("a committed value is not read, though a later one of its key is"),
    "duplicate": Anomaly("one value is at several offsets"),
    "inconsistent-offsets": Anomaly("one offset holds several values"),
    "unseen": Anomaly("an acknowledged value was never read, not even at the end"),
    "G1a": Anomaly("a value was read whose send had definitely failed"),
    "precommitted-read": Anomaly("an operation read what it wrote itself"),
    "int-poll-skip": Anomaly("one operation read two values and left out what lies between"),
    "int-nonmonotonic-poll": Anomaly("one operation read a value again or went backwards"),
    "poll-skip": Anomaly("from one poll to the next a consumer left out values", Invalid.WITHOUT_SUBSCRIBE),
    "nonmonotonic-poll": Anomaly(
        "from one poll to the next a consumer went backwards", Invalid.WITHOUT_SUBSCRIBE
    ),
    "nonmonotonic-send": Anomaly("a process's later send lies before its earlier one"),
    "int-nonmonotonic-send": Anomaly("within one operation a later send lies before an earlier one"),
    "int-send-skip": Anomaly("another's value lies between two sends of one operation", Invalid.NEVER),
    "G0": Anomaly("writes of several operations precede each other in a circle", Invalid.NEVER),
    "G0-process": Anomaly("G0 with the order of a process's operations", Invalid.NEVER),
    "G0-realtime": Anomaly("G0 with the order of real time", Invalid.NEVER),
    "G1c": Anomaly("operations read from and precede each other in a circle", Invalid.NEVER),
    "G1c-process": Anomaly("G1c with the order of a process's operations", Invalid.NEVER),
    "G1c-realtime": Anomaly("G1c with the order of real time", Invalid.NEVER),
    "G1c-pure": Anomaly("operations read from each other in a circle: G1c of reads alone (--no-ww-deps)"),
    "realtime-send": Anomaly("a value is not above what was acknowledged before its send began", ours=True),
    "torn-transaction": Anomaly("of one transaction some values were read and others never", ours=True),
    "processed-twice": Anomaly(
        "one value was consumed in two committed transactions of a group, or twice in one", ours=True
    ),
    "left-out": Anomaly("a group consumed what lies behind a value, and never that value", ours=True),
    "unwritten-read": Anomaly("a value was read that nobody had begun to send", ours=True),
    "delivered-again": Anomaly(
        "a share group delivered a record after it was accepted or rejected", ours=True
    ),
    "undelivered": Anomaly(
        "a share group neither settled a record nor delivered it as often as it may", ours=True
    ),
    "two-holders": Anomaly("a share group gave a record to one member while another had its lock", ours=True),
    "delivery-count": Anomaly(
        "a share group delivered a record with a count that is too low or too high", ours=True
    ),
    "start-offset-back": Anomaly("the start offset of a share group went back", ours=True),
    "id-of-two-schemas": Anomaly("a schema registry gave one id to two schemas", ours=True),
    "schema-of-two-ids": Anomaly("a schema registry gave two ids to one schema", ours=True),
    "version-of-two-schemas": Anomaly("a version of a subject was one schema, and then another", ours=True),
    "schema-twice": Anomaly("one schema was two versions of a subject", ours=True),
    "lost-schema": Anomaly(
        "a node lacks a schema that a response has shown before, or has it elsewhere", ours=True
    ),
    "unregistered-schema": Anomaly(
        "a response shows a schema that no client registered, or only in registrations that failed", ours=True
    ),
    "schema-order": Anomaly(
        "a schema got a lower id or version than was known before its registration began", ours=True
    ),
    "missing-version": Anomaly("a node lacks a version of a subject, and has a higher version", ours=True),
    "unread-schemas": Anomaly(
        "a schema registry was not read at each node after the last acknowledged registration", ours=True
    ),
    "unusable-response": Anomaly(
        "an acknowledged registration has no id or version, or is of another schema", ours=True
    ),
    "never-ok": Anomaly("a function was tried and never once succeeded"),
}


def is_allowed(name: str, header: Header, *, subscribed: bool) -> bool:
    """Return whether an anomaly is no fault: by the table, or because the run's settings permit it."""
    rule = ANOMALIES[name].invalid
    return (
        name in header.allowed or rule is Invalid.NEVER or (rule is Invalid.WITHOUT_SUBSCRIBE and subscribed)
    )
