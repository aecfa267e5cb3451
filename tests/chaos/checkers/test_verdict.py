"""The verdict: what is allowed, the page, and what is no history at all."""

from __future__ import annotations

import json

import pytest

from raftlog_chaos.checkers import judge
from raftlog_chaos.checkers.anomalies import ANOMALIES, Invalid
from raftlog_chaos.checkers.findings import EXAMPLES, Findings
from raftlog_chaos.history import Header, HistoryError
from tests.chaos.checkers.told_history import ToldHistory


def broken(cases: int = 1) -> ToldHistory:
    """Histories of several anomalies, each of them as often as asked for."""
    tale = ToldHistory()
    for case in range(cases):
        key = f"t-{case}"
        tale.send(1, "lost", 0, key=key).send(1, "b", 1, key=key).send(1, "refused", None, "fail", key=key)
        for records in ([[1, "b"]], [[4, "b"], [6, "ghost"]], [[5, "refused"]]):
            tale.both(2 + case, "ok", "poll", [["poll", {key: records}]])
    return tale


def test_what_the_header_allows_does_not_condemn():
    """acks=1 may lose writes: found, shown, and no fault."""
    tale = ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (1, "b"))
    assert not tale.verdict(allowed=["lost-write"]).valid
    verdict = tale.verdict(allowed=["lost-write", "unseen"])
    assert verdict.valid and verdict.faults() == []
    assert verdict.text().endswith("VALID: nothing but what is allowed (lost-write, unseen)")


def test_the_table_follows_jepsens():
    """jepsen.tests.kafka: which are invalid always, only without subscribe, never."""
    rules = {rule: {name for name, row in ANOMALIES.items() if row.invalid is rule} for rule in Invalid}
    assert rules[Invalid.WITHOUT_SUBSCRIBE] == {"poll-skip", "nonmonotonic-poll"}
    cycles = {f"{name}{variant}" for name in ("G0", "G1c") for variant in ("", "-process", "-realtime")}
    assert rules[Invalid.NEVER] == cycles | {"int-send-skip"}
    assert {name for name, row in ANOMALIES.items() if row.ours} == {
        "realtime-send",
        "unwritten-read",
        "torn-transaction",
        "processed-twice",
        "left-out",
        "delivered-again",
        "undelivered",
        "two-holders",
        "delivery-count",
        "start-offset-back",
        "id-of-two-schemas",
        "schema-of-two-ids",
        "version-of-two-schemas",
        "schema-twice",
        "lost-schema",
        "unregistered-schema",
        "schema-order",
        "missing-version",
        "unread-schemas",
        "unusable-response",
    }


def test_faults_are_one_line_each_with_the_number_of_cases():
    """For tests that assert on a verdict."""
    faults = broken(3).verdict().faults()
    assert any(
        line.startswith("G1a on t-0: 'refused' failed") and line.endswith("(3 cases)") for line in faults
    )
    assert len(faults) == len({line.split(" on ")[0].split(":")[0] for line in faults})


def test_the_page_is_about_a_page_however_much_is_wrong():
    """Everything is counted; only the smallest examples are shown and kept."""
    verdict = broken(200).verdict()
    lines = verdict.text().splitlines()
    assert len(lines) < 75 and max(map(len, lines)) <= 160
    assert verdict.cases["G1a"] == 200
    assert all(len(found) <= EXAMPLES for found in verdict.anomalies.values())
    assert lines[-1].startswith("INVALID: lost-write, duplicate, ")


def test_the_smallest_examples_are_kept():
    """Whenever they come."""
    findings = Findings()
    for size in (5, 9, 3, 8, 7, 4, 9, 9, 6, 2, 1, 9):
        findings.add("duplicate", "t-0", str(size), positions=range(size))
    assert [each.explanation for each in findings.examples["duplicate"]] == [*"12345678"]
    assert findings.cases == {"duplicate": 12}


def test_the_page_says_what_was_checked_and_the_history_that_shows_what_is_wrong():
    """Counts, the finding in words, and its operations in order."""
    text = broken().verdict(workload="log", seed=7).text()
    assert "checked   6 operations of 2 processes on 1 keys in 0.0 s (workload log, seed 7)" in text
    assert "send      2 ok, 1 fail" in text
    assert "G1a: a value was read whose send had definitely failed (1 case)" in text
    assert "process 2    ok     poll      t-0 → 5:'refused'" in text


def test_of_a_long_poll_the_page_shows_what_matters():
    """The records around those concerned."""
    tale = ToldHistory().log(*range(100)).poll(1, *((at, at) for at in range(100) if at != 57))
    text = tale.verdict().text()
    assert "t-0 → … 53:53 54:54 55:55 56:56 58:58 59:59 (99 records)" in text


def test_json_says_the_same_as_the_page():
    """For machines; plain values only."""
    verdict = broken().verdict()
    document = json.loads(json.dumps(verdict.as_json()))
    assert document["valid"] is False
    assert set(document["anomalies"]) == set(verdict.anomalies)
    assert document["anomalies"]["G1a"]["examples"][0]["ops"][0]["type"] == "fail"


def test_two_operations_of_a_process_at_once_are_no_history():
    """The recorder is at fault."""
    tale = ToldHistory()
    tale.line(1, "invoke", "poll", [["poll"]])
    tale.line(1, "invoke", "poll", [["poll"]])
    with pytest.raises(HistoryError, match="operation 1: process 1 had not completed its last one"):
        tale.verdict()


def test_a_value_that_is_sent_twice_is_no_history():
    """Without unique values their sends cannot be distinguished."""
    with pytest.raises(HistoryError, match="'a' was sent to t-0 before"):
        ToldHistory().send(1, "a", 0).send(2, "a", 1).verdict()


def test_an_iterator_is_judged_as_a_list_is():
    """A caller without a file may hand over a generator."""
    ops = broken().ops
    assert judge(Header(), iter(ops)).text() == judge(Header(), ops).text()
