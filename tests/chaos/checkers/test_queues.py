"""The laws of share groups: each has a history that breaks it, and histories beside it that do not."""

from __future__ import annotations

import msgspec
import pytest

from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, HistoryError, QueueTerms, decode_op
from tests.chaos.checkers.told_history import KEY, ToldHistory

LOCK, LIMIT, STALE = 40, 3, 20
"""The lock and `stale_s` in lines of a history; each line takes a millisecond."""
TERMS = QueueTerms(lock_s=LOCK / 1000, limit=LIMIT, stale_s=STALE / 1000)
ANN, BOB, WRITER, OBSERVER = 1, 2, 90, 91


class QueueHistory(ToldHistory):
    """A group that consumes t-0, whose record 0 is the value 10, record 1 is 11, …"""

    def __init__(self, records: int = 1) -> None:
        super().__init__()
        self.join(ANN).join(BOB)
        for offset in range(records):
            self.send(WRITER, 10 + offset, offset)

    def join(self, process: int) -> QueueHistory:
        self.both(process, "ok", "join", [KEY], group="g")
        return self

    def gets(self, process: int, *records: tuple[int, int]) -> QueueHistory:
        """Offset and delivery count of each record; none: the poll ends without records."""
        found = {KEY: [[offset, 10 + offset, count] for offset, count in records]} if records else {}
        self.line(process, "invoke", "acquire", [["acquire"]], group="g")
        self.line(process, "ok", "acquire", [["acquire", found]], group="g")
        return self

    def says(self, process: int, kind: str, *offsets: int, outcome: str = "ok") -> QueueHistory:
        self.asks(process, kind, *offsets)
        type = outcome if outcome in ("ok", "fail") else "info"
        self.line(process, type, "acknowledge", [[kind, KEY, list(offsets), outcome]], group="g")
        return self

    def asks(self, process: int, kind: str, *offsets: int) -> QueueHistory:
        self.line(process, "invoke", "acknowledge", [[kind, KEY, list(offsets)]], group="g")
        return self

    def begins(self, offset: int) -> QueueHistory:
        """The coordinator reports the start offset."""
        self.line(OBSERVER, "invoke", "start-offsets", [["start-offsets"]], group="g")
        self.line(OBSERVER, "ok", "start-offsets", [["start-offsets", {KEY: offset}]], group="g")
        return self

    def rest(self, lines: int) -> QueueHistory:
        for _ in range(lines):
            self.line(99, "info", "debug")
        return self

    def judged(self) -> Verdict:
        return judge(Header(queue=TERMS), self.ops)

    def broken(self) -> set[str]:
        """The anomalies of queues; the records of these histories are not polled by consumers."""
        return set(self.judged().anomalies) - {"never-ok", "unseen"}


def written(records: int = 1) -> QueueHistory:
    return QueueHistory(records)


# -- no accepted record is delivered again


@pytest.mark.parametrize("kind", ["accept", "reject"])
@pytest.mark.parametrize("later", [ANN, BOB])
def test_a_settled_record_is_not_delivered_again(kind: str, later: int) -> None:
    """The later delivery was acknowledged, so it came from a leader."""
    history = written().gets(ANN, (0, 1)).says(ANN, kind, 0).gets(later, (0, 1)).says(later, "release", 0)
    assert history.broken() == {"delivered-again"}


def test_a_settled_record_is_not_delivered_later_by_any_broker() -> None:
    """By then even a broker that was paused knows its successor."""
    history = written().gets(ANN, (0, 1)).says(ANN, "accept", 0).rest(STALE + 1).gets(BOB, (0, 1))
    assert history.broken() == {"delivered-again"}


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_a_replaced_leader_may_deliver_what_it_cannot_settle(outcome: str) -> None:
    """Its writes are fenced, in raftlog as in Apache Kafka."""
    history = written().gets(ANN, (0, 1)).says(ANN, "accept", 0).gets(BOB, (0, 1))
    assert history.says(BOB, "accept", 0, outcome=outcome).broken() == set()


def test_a_record_that_an_earlier_poll_has_fetched_is_no_later_delivery() -> None:
    """The client returns it late. Its lock was over, and another member has settled the record meanwhile."""
    history = written().gets(BOB).gets(ANN, (0, 2)).says(ANN, "accept", 0).gets(BOB, (0, 1))
    assert history.says(BOB, "accept", 0).broken() == set()


def test_an_accept_without_a_response_settles_nothing_for_certain() -> None:
    """It may have been carried out or not."""
    history = written().gets(ANN, (0, 1)).asks(ANN, "accept", 0)
    assert history.gets(BOB, (0, 1)).says(BOB, "accept", 0).broken() == set()


# -- none is lost


def test_a_record_that_is_never_delivered_is_lost() -> None:
    """It was acknowledged to its producer, and the group has joined its topic."""
    history = written(2).gets(ANN, (0, 1)).says(ANN, "accept", 0)
    assert history.broken() == {"undelivered"}
    assert "offset 1 of g: delivered 0 times" in history.judged().text()


@pytest.mark.parametrize(("kind", "outcome"), [("release", "ok"), ("accept", "fail"), ("reject", "fail")])
def test_a_record_that_was_delivered_and_not_settled_is_lost(kind: str, outcome: str) -> None:
    """A release, and an answer that was refused, ask for another delivery."""
    assert written().gets(ANN, (0, 1)).says(ANN, kind, 0, outcome=outcome).broken() == {"undelivered"}


@pytest.mark.parametrize("kind", ["accept", "reject"])
def test_an_unknown_answer_may_have_settled_a_record(kind: str) -> None:
    """Neither the answer that the cut took, nor the pending one, counts as refused."""
    assert written().gets(ANN, (0, 1)).says(ANN, kind, 0, outcome="info").broken() == set()
    assert written().gets(ANN, (0, 1)).asks(ANN, kind, 0).broken() == set()


def test_a_record_ends_with_its_last_delivery() -> None:
    """Its delivery count is the limit: the group archives it."""
    history = written()
    for count in range(1, LIMIT + 1):
        history.gets(ANN, (0, count)).says(ANN, "release", 0)
    assert history.broken() == set()


def test_a_record_of_another_topic_is_not_due() -> None:
    """The group has not joined it."""
    history = written().gets(ANN, (0, 1)).says(ANN, "accept", 0)
    history.send(WRITER, 1, 0, key="other-0")
    assert history.broken() == set()


# -- at most one holder


def test_a_record_has_one_holder() -> None:
    """Bob got it, with success, after Ann had it and before she accepted it in time."""
    history = written().gets(ANN, (0, 1)).gets(BOB, (0, 2)).says(BOB, "release", 0).says(ANN, "accept", 0)
    assert history.broken() == {"two-holders"}


def test_a_lock_that_may_be_over_holds_nothing() -> None:
    """Ann's late accept is answered without an error, since the group has passed that record."""
    history = written().gets(ANN, (0, 1)).rest(LOCK).gets(BOB, (0, 2)).says(BOB, "accept", 0)
    assert history.says(ANN, "accept", 0).broken() == set()


def test_a_delivery_that_may_be_older_than_the_lock_is_no_second_holder() -> None:
    """Bob's poll began before Ann had the record."""
    history = written()
    history.line(BOB, "invoke", "acquire", [["acquire"]], group="g")
    history.gets(ANN, (0, 2))
    history.line(BOB, "ok", "acquire", [["acquire", {KEY: [[0, 10, 1]]}]], group="g")
    assert history.says(BOB, "release", 0).says(ANN, "accept", 0).broken() == set()


# -- the delivery count


@pytest.mark.parametrize("count", [1, 2])
def test_a_count_grows_with_each_confirmed_release(count: int) -> None:
    """It is written with the release, so that each later leader knows it."""
    history = written().gets(ANN, (0, 2)).says(ANN, "release", 0).gets(BOB, (0, count)).says(BOB, "accept", 0)
    assert history.broken() == {"delivery-count"}


def test_a_count_may_repeat_where_no_answer_was_written() -> None:
    """The next leader knows a count as it was last written."""
    history = written().gets(ANN, (0, 1)).says(ANN, "release", 0, outcome="info").gets(BOB, (0, 1))
    assert history.says(BOB, "accept", 0).broken() == set()


@pytest.mark.parametrize("count", [0, LIMIT + 1])
def test_a_count_is_within_the_limit(count: int) -> None:
    """A record beyond it must have been archived."""
    assert written().gets(ANN, (0, count)).says(ANN, "accept", 0).broken() == {"delivery-count"}


# -- the start offset


def test_the_start_offset_never_goes_back() -> None:
    """Both reports are far apart: no replaced coordinator is left that does not know it."""
    assert written(0).begins(5).begins(7).rest(STALE).begins(6).broken() == {"start-offset-back"}
    assert written(0).begins(5).rest(STALE).begins(5).begins(7).broken() == set()


def test_a_replaced_coordinator_may_report_an_older_start_offset_for_a_while() -> None:
    """As in Apache Kafka, it reads its own memory."""
    assert written(0).begins(7).begins(6).broken() == set()


# -- the rest


def test_a_delivered_value_is_the_one_that_was_sent() -> None:
    """A share group reads the same log as any consumer."""
    history = written()
    history.line(ANN, "invoke", "acquire", [["acquire"]], group="g")
    history.line(ANN, "ok", "acquire", [["acquire", {KEY: [[0, 99, 1]]}]], group="g")
    assert history.says(ANN, "accept", 0).broken() == {"inconsistent-offsets"}


def test_a_sound_history_is_valid_and_a_broken_one_shows_its_lines() -> None:
    """Both on the page of every verdict."""
    sound = written(2).gets(ANN, (0, 1), (1, 1)).says(ANN, "release", 0).gets(BOB, (0, 2))
    sound.says(BOB, "accept", 0)
    sound.line(ANN, "invoke", "acquire", [["acquire"]], group="g")
    assert "undelivered" in sound.broken()
    page = sound.judged().text()
    assert "INVALID" in page and "offset 1 of g: delivered 1 times, never accepted or rejected" in page
    assert "t-0 → 0:10(1x) 1:11(1x)" in page


def test_lines_of_queues_are_validated() -> None:
    """An unknown kind of answer is no history."""
    good = {"index": 0, "time_ns": 0, "process": 1, "type": "ok", "f": "acknowledge"}
    line = good | {"value": [["accept", KEY, [1, 2], "ok"]]}
    assert decode_op(msgspec.json.encode(line), 1).value == line["value"]
    for value in ([["renew", KEY, [1]]], [["accept", KEY, [-1]]], [["accept", KEY, [1], "perhaps"]]):
        with pytest.raises(HistoryError):
            decode_op(msgspec.json.encode(good | {"value": value}), 1)
