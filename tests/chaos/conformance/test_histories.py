"""raftlog answers as Apache Kafka did when its answers were recorded, or differs as the list of differences says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog_chaos.conformance import known, recordings
from raftlog_chaos.conformance.brokers import Brokers, brokers
from raftlog_chaos.conformance.compare import differences, is_broken, story
from raftlog_chaos.conformance.differences import judge
from raftlog_chaos.conformance.history import History, load
from raftlog_chaos.conformance.run import NAMES, run_on
from tests.kit.marks import taste

SAMPLE = 40
HISTORIES = list(load().values())
CHEAP = [each for each in HISTORIES if each.needs.nodes == 1 and not each.needs.restarts and not each.slow]


SAMPLED = CHEAP[:: max(1, len(CHEAP) // SAMPLE)][:SAMPLE]
"""Spread over the subjects; the others are for the nightly run."""


@pytest.fixture(scope="module")
def side() -> Iterator[Brokers]:
    """Brokers of raftlog."""
    with brokers("raftlog") as (made,):
        yield made


@pytest.mark.parametrize("history", taste(SAMPLED, CHEAP), ids=lambda each: each.label)
def test_raftlog_answers_as_kafka_did(side: Brokers, history: History) -> None:
    """The recorded answers are Kafka 4.3's own; `make kafka-diff` compares both live."""
    kafka = recordings.read(history.subject)["histories"][history.name]
    other = run_on(side, history)
    unknown = judge(differences(history.label, kafka, other), known.load()).unknown
    assert not unknown, "\n".join(story(history, kafka, other, names=NAMES))


def test_every_history_is_recorded_and_every_recording_has_a_history() -> None:
    """A history that was changed or added is recorded with it: `make kafka-record`."""
    recorded = {
        f"{subject}/{name}"
        for subject in {each.subject for each in HISTORIES}
        for name in recordings.read(subject)["histories"]
    }
    assert recorded == {each.label for each in HISTORIES}


def test_no_recording_stopped_before_its_end() -> None:
    """A history that Kafka itself does not finish is no evidence."""
    found = [
        each.label
        for each in HISTORIES
        if is_broken(recordings.read(each.subject)["histories"].get(each.name, []))
    ]
    assert not found


def test_every_known_difference_is_about_a_history() -> None:
    """An entry for a renamed history explains no difference; the live comparison finds entries that are not seen any
    more.
    """
    labels = {each.label for each in HISTORIES}
    assert [each for each in known.load() if each.histories and not each.is_about(labels)] == []
