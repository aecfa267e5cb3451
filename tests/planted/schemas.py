"""Bugs of the schema registry's store, and of the check of records by its schemas."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.admin.schema_registry import answers
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.store import SchemaStore
from raftlog.base.config import TopicConfig
from raftlog.base.schema_log import SchemaLogBounds
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.broker.coordination import schema_check, schema_log
from raftlog.broker.coordination.schema_reader import SchemaReader
from raftlog.replication.leader_role import LATEST
from raftlog.schemas import produced
from raftlog_chaos.scenarios.schemas import schemas as play
from raftlog_chaos.scenarios.schemas_moved import schemas_moved as play_moved
from raftlog_chaos.scenarios.schemas_truncated import schemas_truncated as play_truncated
from tests.planted.plant import Plant

TEST = "tests/broker/coordination/test_schema_check.py"


def append_wherever_the_log_ends(patch: pytest.MonkeyPatch) -> None:
    """The leader appends what it decided on some other log, in some other epoch."""
    append = schema_log.SchemaLog.append

    def append_anywhere(self: Any, records: Any, *, at: int, leader_epoch: int, now_ms: int) -> int:
        bounds = self.bounds()
        return append(
            self, records, at=bounds.log_end_offset, leader_epoch=bounds.leader_epoch, now_ms=now_ms
        )

    patch.setattr(schema_log.SchemaLog, "append", append_anywhere)


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A change is answered as soon as it is in the leader's log."""

    async def committed(self: Any, end_offset: int, leader_epoch: int) -> None:
        return

    patch.setattr(SchemaStore, "_committed", committed)


def decide_below_the_log_end(patch: pytest.MonkeyPatch) -> None:
    """A new leader decides on what its high watermark covers, and appends at the end of its log."""
    append, bounds = schema_log.SchemaLog.append, schema_log.SchemaLog.bounds

    def seen(self: Any) -> SchemaLogBounds:
        found = bounds(self)
        return found._replace(log_end_offset=found.high_watermark)

    def append_at_the_end(self: Any, records: Any, *, at: int, leader_epoch: int, now_ms: int) -> int:
        with pytest.MonkeyPatch.context() as whole:
            whole.setattr(schema_log.SchemaLog, "bounds", bounds)
            end_offset = bounds(self).log_end_offset
            return append(self, records, at=end_offset, leader_epoch=leader_epoch, now_ms=now_ms)

    patch.setattr(schema_log.SchemaLog, "bounds", seen)
    patch.setattr(schema_log.SchemaLog, "append", append_at_the_end)


def check_the_first_record(patch: pytest.MonkeyPatch) -> None:
    """A batch is accepted for the schema of its first record."""
    numbered = produced._numbered
    patch.setattr(produced, "_numbered", lambda batch: islice(numbered(batch), 1))


def check_values_alone(patch: pytest.MonkeyPatch) -> None:
    """The schemas of keys are not looked at."""

    def fields(config: TopicConfig) -> tuple[str, ...]:
        return ("value",) if config.confluent_value_schema_validation else ()

    patch.setattr(schema_check, "schema_fields", fields)


def count_failed_readings(patch: pytest.MonkeyPatch) -> None:
    """What could not be read counts as read, so a registered schema is unknown."""
    attempt = SchemaReader._attempt

    async def attempt_in_vain(self: SchemaReader) -> str:
        await attempt(self)
        return ""

    patch.setattr(SchemaReader, "_attempt", attempt_in_vain)


def ask_the_believed_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """A leader that was paused takes itself for the leader still, and what it has not read for unknown."""

    async def confirm(self: SchemaReader, state: Any) -> None:
        return

    patch.setattr(SchemaReader, "_confirm", confirm)


def read_on_past_deleted_records(patch: pytest.MonkeyPatch) -> None:
    """A reader that the log start has passed goes on there, and keeps schemas that were deleted in between."""
    restart = SchemaReader._restart

    def go_on(self: Any, source: tuple[Any, int], offset: int) -> None:
        if source == self._loaded_from:
            self._offset = offset
        else:
            restart(self, source, offset)

    patch.setattr(SchemaReader, "_restart", go_on)


def keep_the_end_of_a_reading(patch: pytest.MonkeyPatch) -> None:
    """A reading ends at the first end offset that it hears of, though the log start may have passed that offset."""
    read_all, special_offset = SchemaReader._read_all, SchemaReader._special_offset
    ends: dict[Any, int] = {}

    async def read(self: Any) -> None:
        ends.pop(self, None)
        await read_all(self)

    async def first_end(self: Any, leader: int, timestamp: int) -> int:
        if timestamp != LATEST:
            return await special_offset(self, leader, timestamp)
        if self not in ends:
            ends[self] = await special_offset(self, leader, timestamp)
        return ends[self]

    patch.setattr(SchemaReader, "_read_all", read)
    patch.setattr(SchemaReader, "_special_offset", first_end)


def read_on_under_any_leader(patch: pytest.MonkeyPatch) -> None:
    """A reader takes the log of a new leader for that of the last, which had records that are gone."""
    read_all = SchemaReader._read_all

    async def read_on(self: Any) -> None:
        topic = self._broker.image().topics.get(SCHEMAS_TOPIC)
        if topic is not None and topic.topic_id == self._loaded_from[0]:
            self._loaded_from = (topic.topic_id, topic.partitions[0].leader_epoch)
        await read_all(self)

    patch.setattr(SchemaReader, "_read_all", read_on)


def trust_the_length_of_the_log(patch: pytest.MonkeyPatch) -> None:
    """A registry keeps schemas that an unclean election has lost if its replica is as long as before again."""

    async def was_replaced(self: SchemaStore, bounds: SchemaLogBounds) -> bool:
        return False

    patch.setattr(SchemaStore, "_was_replaced", was_replaced)


def retry_where_it_was_forwarded_to(patch: pytest.MonkeyPatch) -> None:
    """A forwarded request waits at a node that lost the lead, until that node leads again."""
    is_retried = answers._is_retried

    def at_any_node(call: Any, error: Any, *, repeatable: bool) -> bool:
        asked = SimpleNamespace(is_forwarded=False)
        found: Any = is_retried(cast("Any", asked), error, repeatable=repeatable)
        return bool(found)

    patch.setattr(answers, "_is_retried", at_any_node)


def wait_for_each_other(patch: pytest.MonkeyPatch) -> None:
    """A forwarded request takes the place of the client's own, so two nodes that forward wait for each other."""
    turn_of = Registry.turn_of
    patch.setattr(Registry, "turn_of", lambda self, client: turn_of(self, (*client[:2], False)))


PLANTS = [
    Plant(
        "schemas-forwarded-stays",
        "a fast answer",
        play_moved,
        retry_where_it_was_forwarded_to,
        12.0,
    ),
    Plant("schemas-forwarded-waits", "a fast answer", play_moved, wait_for_each_other, 12.0),
    Plant(
        "schemas-leader-unconfirmed",
        "a replaced leader",
        play,
        ask_the_believed_leader_alone,
        6.0,
        test=f"{TEST}::test_a_leader_that_was_replaced_refuses_no_record_for_good",
    ),
    Plant("schemas-first-record-only", "each record is checked", play, check_the_first_record, 6.0),
    Plant("schemas-values-only", "keys are checked", play, check_values_alone, 6.0),
    Plant("schemas-unread-is-unknown", "unread is not unknown", play, count_failed_readings, 6.0),
    Plant("schemas-appended-anywhere", "one writer of schemas", play, append_wherever_the_log_ends, 6.0),
    Plant("schemas-answered-early", "answer at commit", play, answer_before_the_commit, 6.0),
    Plant("schemas-decided-early", "decide on the tail", play, decide_below_the_log_end, 6.0),
    Plant(
        "schemas-kept-past-log-start",
        "records that are gone",
        play_truncated,
        read_on_past_deleted_records,
        5.0,
    ),
    Plant(
        "schemas-end-passed-by-log-start",
        "records that are gone",
        play_truncated,
        keep_the_end_of_a_reading,
        5.0,
        test=f"{TEST}::test_a_reading_whose_end_the_log_start_passes_goes_on_to_the_new_end",
    ),
    Plant(
        "schemas-kept-under-any-leader",
        "records that are gone",
        play_truncated,
        read_on_under_any_leader,
        5.0,
    ),
    Plant(
        "schemas-kept-when-truncated",
        "records that are gone",
        play_truncated,
        trust_the_length_of_the_log,
        5.0,
        test="tests/schemas/test_store.py::test_a_log_that_was_truncated_and_has_grown_again_is_read_anew",
    ),
]
