"""A broker's answers as plain data, in which only what a client relies on is left.

`RULES` says what is taken out and why. Everything else must be equal on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.messages import Message

Act = Literal["drop", "label", "time", "sort", "epoch"]


class Rule(NamedTuple):
    """The treatment of fields of these names, wherever they stand. `word` is the label's."""

    act: Act
    fields: frozenset[str]
    why: str
    word: str = ""


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


RULES: Final = (
    Rule("drop", _fields("throttle_time"), "Quotas are measured in real time."),
    Rule(
        "drop",
        _fields("error_message acknowledge_error_message batch_index_error_message"),
        "Texts of errors are for people, and no client reads them.",
    ),
    Rule("drop", _fields("host port rack"), "Each cluster lives at its own address."),
    Rule("label", _fields("cluster_id"), "A cluster makes up its own id.", "cluster"),
    Rule("label", _fields("topic_id"), "A broker makes up the ids of topics.", "topic-id"),
    Rule(
        "label",
        _fields("producer_id v3_and_below_producer_id producer_id_filters"),
        "Brokers hand out blocks of producer ids.",
        "producer",
    ),
    Rule("label", _fields("member_id leader"), "A coordinator makes up the ids of members.", "member"),
    Rule("label", _fields("session_id"), "A broker makes up the ids of fetch sessions.", "session"),
    Rule(
        "label",
        _fields(
            "node_id broker_id leader_id controller_id coordinator_id "
            "replica_nodes isr_nodes offline_replicas preferred_read_replica broker_ids"
        ),
        "Kafka places replicas by chance.",
        "node",
    ),
    Rule(
        "time",
        _fields(
            "timestamp base_timestamp max_timestamp log_append_time last_timestamp transaction_start_time"
        ),
        "Times are relative to the history's start; times that the broker gave are `now`.",
    ),
    Rule(
        "epoch",
        _fields("member_epoch group_epoch assignment_epoch generation_id_or_member_epoch"),
        "Epochs of a consumer group are counted from the first: Kafka 4.3 begins with 2, before it and here with 1.",
        "epoch",
    ),
    Rule(
        "epoch",
        _fields("generation_id"),
        "So are generations, which are epochs where members of both protocols meet.",
        "generation",
    ),
    Rule(
        "sort",
        _fields(
            "brokers groups configs responses partition_responses results topics partitions coordinators resources "
            "results_by_transaction results_by_topic_v3_and_below results_by_partition topic_results "
            "transaction_states active_producers unknown_state_filters replica_election_results "
            "members topic_partitions acls matching_acls subscribed_topic_names entity entries"
        ),
        "Kafka answers in the order of a hash table: the order here is that of `IDENTITY`.",
    ),
)
IDENTITY: Final = (
    *("name", "topic", "topic_id", "topic_name", "index", "partition_index", "partition"),
    *("resource_type", "resource_name", "group_id", "key", "node_id", "broker_id", "member_id"),
    *("pattern_type", "principal", "host", "operation", "permission_type", "entity_type", "entity"),
    *("transactional_id", "producer_id"),
)
"""The fields by which the elements of a list are ordered."""
_RULE_OF: Final = {field: rule for rule in RULES for field in rule.fields}
_NO_ID: Final = (-1, 0, "", None, "00000000-0000-0000-0000-000000000000")

_TOLD_BACK: Final = ("topic_partitions",)
"""Lists that a client has from an answer."""

START_BEFORE_MS: Final = 120_000
"""A history's time begins so long before its broker is asked, so that its own times and the broker's cannot meet."""
LONGEST_MS: Final = 1_800_000
"""No history takes longer than that."""
MAX_EPOCHS: Final = 50
"""Epochs further from the first are none of this history."""
FAR_MS: Final = 10**10
"""Times further from the start than that are no times of this history, and shown as they are."""


class Step(NamedTuple):
    """A question and its answer, as data. `answer` is a message, or a text where none came."""

    asked: str
    fields: Any
    answer: Any


def as_json(step: Step) -> Mapping[str, Any]:
    """Return a step for a file; what is empty is left out."""
    return {name: value for name, value in step._asdict().items() if value not in ({}, None)}


class Normaliser:
    """Makes the observations of one history comparable. `names` maps the names that it made up to what is shown."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._names: dict[str, str] = {}
        self._labels: dict[tuple[str, Any], Any] = {}
        self._counts: dict[str, int] = {}
        self._first_epochs: dict[str, int] = {}

    def add_name(self, name: str, shown: str) -> None:
        """Show a name that a history made up under another name."""
        self._names[name] = shown

    def asked(self, message: Any) -> Any:
        """Return what a history sent. Ids that it made up itself are shown as they are."""
        return self._walk(message, "", is_answer=False)

    def answered(self, message: Any) -> Any:
        """Return what a broker sent. Each id that is new gets the next label."""
        return self._walk(message, "", is_answer=True)

    def _walk(self, value: Any, field: str, *, is_answer: bool) -> Any:
        rule = _RULE_OF.get(field)
        if isinstance(value, dict):
            return dict(self._items(value, is_answer=is_answer))
        if isinstance(value, bytes):
            return self._bytes(value, field, is_answer=is_answer)
        if isinstance(value, list):
            found = [self._walk(each, field, is_answer=is_answer) for each in value]
            is_sorted = rule is not None and rule.act == "sort"
            is_unordered = is_sorted and (is_answer or field in _TOLD_BACK)
            return sorted(found, key=_identity) if is_unordered else found
        if rule is not None and rule.act == "label":
            return self._label(rule.word, value, is_answer=is_answer)
        if rule is not None and rule.act == "time" and isinstance(value, int):
            return self.time(value)
        if rule is not None and rule.act == "epoch":
            return self._epoch(rule.word, value, is_answer=is_answer)
        return self._text(value) if isinstance(value, str) else value

    def _items(self, message: Message, *, is_answer: bool) -> Iterator[tuple[str, Any]]:
        for name, value in message.items():
            rule = _RULE_OF.get(name)
            is_of_acl = name == "host" and "port" not in message
            if rule is None or rule.act != "drop" or is_of_acl:
                yield name, self._walk(value, name, is_answer=is_answer)

    def _bytes(self, value: bytes, field: str, *, is_answer: bool) -> Any:
        if field == "records":
            return self._walk(batches.read(value), field, is_answer=is_answer)
        for name, shown in self._names.items():
            value = value.replace(name.encode(), shown.encode())
        return batches.text(value)

    def _label(self, word: str, value: Any, *, is_answer: bool) -> Any:
        if isinstance(value, str) and (shown := self._text(value)) != value:
            return shown
        if value in _NO_ID and (word != "producer" or value != 0):
            return value
        known = self._labels.get((word, value))
        if known is None and is_answer:
            self._counts[word] = self._counts.get(word, 0) + 1
            known = self._labels[word, value] = f"{word}-{self._counts[word]}"
        elif known is None:
            known = self._labels[word, value] = self._text(value) if isinstance(value, str) else value
        return known

    def _epoch(self, word: str, value: int, *, is_answer: bool) -> Any:
        if value > 0 and is_answer:
            self._first_epochs.setdefault(word, value)
        first = self._first_epochs.get(word, next(iter(self._first_epochs.values()), None))
        if value <= 0 or first is None or abs(value - first) > MAX_EPOCHS:
            return value
        return f"first{value - first:+}"

    def _text(self, value: str) -> str:
        for name, shown in self._names.items():
            value = value.replace(name, shown)
        return value

    def time(self, value: int) -> Any:
        """Return a time relative to the history's start, or "now" for the broker's present time."""
        since = value - self._start_ms
        if START_BEFORE_MS // 2 <= since <= LONGEST_MS:
            return "now"
        return f"start{since:+}" if abs(since) < FAR_MS else value


def _identity(element: Any) -> Any:
    if not isinstance(element, dict):
        return repr(element)
    return [(repr(element.get(name, 0)).zfill(12)) for name in IDENTITY]
