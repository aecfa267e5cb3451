"""The options of jobs: a table from which file and flags are made, and every fault reported at once."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.pipeline.jobs.aggregate import AggregateOptions
from raftlog.pipeline.jobs.archive import ArchiveOptions
from raftlog.pipeline.jobs.audit import AuditOptions
from raftlog.pipeline.jobs.mirror import MirrorOptions
from raftlog.pipeline.jobs.settings import SettingFaults, build, rows

GIVEN: dict[str, Any] = {"topics": ["t"], "checkpoint": "/tmp/c", "path": "/tmp/p"}


def faults(options: type, *sources: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingFaults) as caught:
        build(options, *sources)
    return caught.value.faults


def test_a_flag_wins_over_the_file_and_what_neither_says_has_its_default():
    """None is a flag that was not given."""
    options = build(ArchiveOptions, {**GIVEN, "max-records": 10}, {"max_records": 20, "every": None})
    assert (options.max_records, options.every, options.topics) == (20, 0.0, ("t",))


def test_all_faults_are_reported_together():
    """Missing, mistyped, too low, unknown, and what does not go together."""
    told = faults(ArchiveOptions, {"topic_pattern": 3, "every": -1, "max_recods": 5, "client": ["x"]})
    assert told == [
        "max_recods: unknown option, max_records is near",
        "topic_pattern: 3 is not text",
        "checkpoint: must be given",
        "every: -1.0 is below 0",
        "path: must be given",
        "topics: give either topics or topic_pattern",
        "client: a value is not NAME=VALUE",
    ]


@pytest.mark.parametrize("option", ["client", "to_client", "conf"])
@pytest.mark.parametrize("given", ["hidden-word", "=hidden-word", 5055055])
def test_what_may_be_a_password_is_not_quoted(option: str, given: Any):
    """A mistyped --client may be the password alone."""
    told = faults(MirrorOptions, {"topics": ["t"], "checkpoint": "/tmp/c", "to": "h:1", option: [given]})
    assert told
    for each in told:
        assert each.startswith(f"{option}: a value is not")
        assert str(given) not in each


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        (ArchiveOptions, {"start": "now"}, "start: 'now' is none of earliest, latest or JSON"),
        (ArchiveOptions, {"start": "[]"}, "start: '[]' is none of"),
        (ArchiveOptions, {"path": "s3://b/x"}, "path: s3: is not built"),
        (ArchiveOptions, {"connector": "pulsar"}, "connector: 'pulsar' is none of raftlog, kafka"),
        (ArchiveOptions, {"max_records": True}, "max_records: True is not a whole number"),
        (ArchiveOptions, {"topic_pattern": "x.*"}, "topics: give either"),
        (AuditOptions, {"identity": "json:"}, "identity: 'json:' is none of"),
        (AuditOptions, {"order": "value"}, "order: 'value' is neither"),
        (AuditOptions, {"client": ["check.crcs=false"]}, "client: check.crcs=false would blind the audit"),
    ],
)
def test_bad_values_are_named_with_what_is_allowed(options: type, more: dict[str, Any], told: str):
    """A fault begins with the option's name."""
    own = {row.name for row in rows(options)}
    given = {name: value for name, value in GIVEN.items() if name in own}
    assert [each for each in faults(options, given, more) if each.startswith(told)]


def test_where_windows_go_is_one_place_and_not_what_is_read():
    """A job that reads its own output never ends."""
    shape = {"schema": "a INT", "event_time": "a", "window": "1 hour"}
    given = {"topics": ["t"], "checkpoint": "/tmp/c", **shape}
    assert faults(AggregateOptions, given) == ["to_topic: give either to_topic or to_path"]
    assert faults(AggregateOptions, given, {"to_topic": "t", "dead_letter": "t"}) == [
        "to_topic: t is read by this very job",
        "dead_letter: t is read by this very job",
    ]


def test_a_mirror_into_its_own_cluster_needs_other_names():
    """Without them each record would be copied for ever."""
    given = {"topics": ["t"], "checkpoint": "/tmp/c", "bootstrap": "h:1", "to": "h:1"}
    assert faults(MirrorOptions, given) == ["to: is the very cluster that is read; give a prefix"]
    assert build(MirrorOptions, given, {"prefix": "copy."}).prefix == "copy."


@pytest.mark.parametrize("value", ["true", " True"])
def test_a_mirror_refuses_a_spark_that_speculates(value: str):
    """Two attempts of a task side by side would both send its records."""
    given = {"topics": ["t"], "checkpoint": "/tmp/c", "to": "h:1"}
    (fault,) = faults(MirrorOptions, given | {"conf": [f"spark.speculation={value}"]})
    assert fault.startswith("conf: spark.speculation=true")
    assert build(MirrorOptions, given | {"conf": ["spark.speculation=false"]})


def test_readers_see_the_words_of_sparks_kafka_source():
    """The same for both connectors."""
    more = {"client": ["security.protocol=SSL"], "start": '{"t":{"0":5}}', "fail_on_data_loss": False}
    assert build(ArchiveOptions, GIVEN, more).reader_options() == {
        "kafka.security.protocol": "SSL",
        "kafka.bootstrap.servers": "localhost:9092",
        "includeHeaders": "true",
        "subscribe": "t",
        "startingOffsets": '{"t":{"0":5}}',
        "maxOffsetsPerTrigger": "500000",
        "failOnDataLoss": "false",
    }
