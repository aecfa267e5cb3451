"""nonmonotonic-send, what is within one operation, and realtime-send: the order of writing."""

from __future__ import annotations

from tests.chaos.checkers.told_history import KEY, ToldHistory, sending


def read_all(tale: ToldHistory, *values: str) -> ToldHistory:
    return tale.poll(99, *enumerate(values))


def test_sends_in_order_are_right():
    """Of one process, others in between."""
    tale = ToldHistory().send(1, "a", 0).send(2, "b", 1).send(1, "c", 2)
    assert read_all(tale, "a", "b", "c").found() == set()


def test_a_later_send_below_an_earlier_one_of_the_same_process_is_not_monotonic():
    """jepsen.tests.kafka, nonmonotonic-send; in real time it is wrong as well."""
    tale = ToldHistory().send(1, "a", 1).send(1, "b", 0)
    assert read_all(tale, "b", "a").found() >= {"nonmonotonic-send", "realtime-send"}


def test_sends_of_unknown_fate_have_an_order_if_they_committed():
    """jepsen.tests.kafka: ok and info operations."""
    tale = ToldHistory().send(1, "a", None, "info").send(1, "b", 0)
    assert "nonmonotonic-send" in read_all(tale, "b", "a").found()


def test_failed_sends_have_no_order():
    """Even if the value was read: that is wrong for another reason."""
    tale = ToldHistory().log("x").send(1, "b", 2).send(1, "a", None, "fail")
    assert tale.poll(2, (1, "a"), (2, "b"), type="info").poll(3, (2, "b")).found() == set()


def test_different_keys_have_no_common_order():
    """Per key only."""
    tale = ToldHistory().send(1, "a", 5).send(1, "b", 0, key="t-1")
    tale.line(2, "ok", "poll", [["poll", {KEY: [[5, "a"]], "t-1": [[0, "b"]]}]])
    assert tale.found() == set()


def test_assigning_other_keys_forgets_what_was_sent():
    """jepsen.tests.kafka: assign and subscribe prune this memory, too."""
    tale = ToldHistory().send(1, "a", None, "info").assign(1, "t-1").send(1, "b", 0)
    assert "nonmonotonic-send" not in read_all(tale, "b", "a").found()


def test_within_one_operation_a_later_send_must_lie_behind():
    """jepsen.tests.kafka, int-nonmonotonic-send."""
    tale = ToldHistory().sends(1, (1, "a"), (0, "b"))
    assert read_all(tale, "b", "a").found() == {"int-nonmonotonic-send"}
    tale = ToldHistory().sends(1, (0, "a"), (1, "b"))
    assert read_all(tale, "a", "b").found() == set()


def test_anothers_value_between_two_sends_is_normal():
    """jepsen.tests.kafka, int-send-skip: Kafka does not isolate writes, so it never condemns."""
    tale = ToldHistory()
    tale.line(1, "invoke", "send", [["send", KEY, "a"], ["send", KEY, "c"]])
    tale.send(2, "b", 1)
    tale.line(1, "ok", "send", [sending(0, "a"), sending(2, "c")])
    verdict = read_all(tale, "a", "b", "c").verdict()
    assert "int-send-skip" in verdict.anomalies and verdict.valid


def test_an_acknowledged_value_lies_above_all_that_was_acknowledged_before_its_send_began():
    """Ours: real-time order between processes, with the three lines that show it."""
    tale = ToldHistory().send(1, "a", 5).send(2, "b", 4).poll(3, (4, "b"), (5, "a"))
    verdict = tale.verdict()
    assert {name for name in verdict.anomalies if not verdict.anomalies[name][0].allowed} == {"realtime-send"}
    assert [op.type for op in verdict.anomalies["realtime-send"][0].ops] == ["ok", "invoke", "ok"]


def test_an_offset_that_was_acknowledged_before_is_too_low_as_well():
    """The same offset twice."""
    assert "realtime-send" in ToldHistory().send(1, "a", 5).send(2, "b", 5).poll(3, (5, "a")).found()


def test_sends_at_the_same_time_may_land_in_any_order():
    """The second had begun before the first was acknowledged."""
    tale = ToldHistory()
    tale.line(2, "invoke", "send", [["send", KEY, "b"]])
    tale.send(1, "a", 5)
    tale.line(2, "ok", "send", [sending(4, "b")])
    assert tale.poll(3, (4, "b"), (5, "a")).found() == set()


def test_a_refused_send_may_have_any_offset():
    """Only ok operations are held to it."""
    assert ToldHistory().send(1, "a", 5).send(2, "b", 4, "fail").poll(3, (5, "a")).found() == set()
