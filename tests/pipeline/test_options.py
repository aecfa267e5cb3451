"""The options of `format("raftlog")`, as Spark's Kafka source has them."""

from __future__ import annotations

import pytest

from raftlog.pipeline.offsets import TopicPartition
from raftlog.pipeline.options import (
    AtOffsets,
    AtTimes,
    Everywhere,
    OptionFaults,
    read_options,
    write_options,
)

SERVERS = {"kafka.bootstrap.servers": "a:9092"}
READ = {**SERVERS, "subscribe": "t"}


def faults(options: dict[str, str], mode: str | None = None) -> list[str]:
    with pytest.raises(OptionFaults) as found:
        read_options(options, mode)
    return found.value.faults


def test_a_batch_reads_everything_and_a_stream_what_is_new():
    """The defaults of Spark's Kafka source."""
    assert read_options(READ, "batch").start == Everywhere(-2)
    assert read_options(READ, "stream").start == Everywhere(-1)
    assert read_options(READ, "batch").end == Everywhere(-1)
    assert read_options(READ).fail_on_data_loss


def test_names_of_options_have_no_case():
    """Spark hands them over in lower case, people write them as they like."""
    options = read_options({**SERVERS, "SUBSCRIBE": "a, b", "FailOnDataLoss": "FALSE", "minpartitions": "7"})
    assert options.subscription.topics == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.min_partitions == 7


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"startingOffsets": '{"t":{"0":4,"1":0}}', "endingOffsets": '{"t":{"0":2,"1":5}}'},
            "startingOffsets: t-0: 4 is greater than 2 of endingOffsets",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "endingOffsetsByTimestamp": '{"t":{"0":8}}'},
            "startingOffsetsByTimestamp: t-0: 9 is greater than 8 of endingOffsetsByTimestamp",
        ),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "startingTimestamp: 9 is greater than endingTimestamp=8",
        ),
    ],
)
def test_a_batch_that_begins_after_its_end_is_refused_before_any_record_is_read(
    options: dict[str, str], what: str
):
    """As Spark's Kafka source refuses it, whatever failOnDataLoss says."""
    assert faults({**READ, **options, "failOnDataLoss": "false"}, "batch") == [what]


@pytest.mark.parametrize(("start", "end"), [("4", "4"), ("4", "-1"), ("-2", "0")])
def test_a_batch_may_end_where_it_begins_and_at_the_latest_offset(start: str, end: str):
    """-2 and -1 stand for offsets that only the log knows."""
    given = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{end}}}}}'}
    assert read_options({**READ, **given}, "batch").fail_on_data_loss


def test_all_faults_are_reported_together_by_name():
    """Users do not want to mend a single option per attempt."""
    found = faults(
        {
            "startingOffsets": "middle",
            "minPartitions": "0",
            "maxOffsetsPerTrigger": "many",
            "failOnDataLoss": "perhaps",
            "maxTriggerDelay": "soon",
            "kafka.auto.offset.reset": "earliest",
            "kafka.enable.auto.commit": "true",
        }
    )
    names = [
        "subscribe:",
        "startingOffsets: 'middle'",
        "minPartitions: 0 is below 1",
        "maxOffsetsPerTrigger: 'many'",
        "failOnDataLoss: 'perhaps'",
        "maxTriggerDelay: 'soon'",
        "kafka.auto.offset.reset:",
        "kafka.enable.auto.commit:",
        "kafka.bootstrap.servers: is missing",
    ]
    for name in names:
        assert any(fault.startswith(name) for fault in found), (name, found)
    assert len(found) == len(names)


def test_a_misspelt_option_is_reported_with_the_nearest_option():
    """Kafka's source ignores startingOffset, and reads from elsewhere."""
    assert faults({**READ, "startingOffset": "earliest"}) == [
        "startingoffset: unknown option, startingOffsets is near"
    ]


def test_an_option_of_writing_is_refused_for_reading_and_the_other_way_round():
    """It would have no effect, silently."""
    assert faults({**READ, "topic": "t"}) == ["topic: is not for reading"]
    with pytest.raises(OptionFaults, match="subscribe: "):
        write_options({**SERVERS, "subscribe": "t"})


@pytest.mark.parametrize(
    "ways", [{}, {"subscribe": "t", "assign": '{"t":[0]}'}, {"subscribe": "t", "subscribePattern": "t.*"}]
)
def test_exactly_one_option_says_what_to_read(ways: dict[str, str]):
    """Two would contradict each other."""
    (fault,) = faults({**SERVERS, **ways})
    assert "exactly one of subscribe, subscribePattern, assign" in fault


def test_a_pattern_covers_whole_names_and_an_assignment_its_partitions():
    """As Java's Pattern.matches does."""
    pattern = read_options({**SERVERS, "subscribePattern": "rides-.*"}).subscription
    assert pattern.covers(TopicPartition("rides-x", 3))
    assert not pattern.covers(TopicPartition("my-rides-x", 3))
    assigned = read_options({**SERVERS, "assign": '{"t":[2,0]}'}).subscription
    assert assigned.assigned == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert not assigned.covers(TopicPartition("t", 1))


def test_offsets_are_given_as_json_and_times_win_over_them():
    """The precedence of Spark's Kafka source: common time, times, offsets."""
    offsets = {**READ, "startingOffsets": '{"t":{"0":23,"1":-2}}'}
    assert read_options(offsets, "batch").start == AtOffsets(
        {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2}
    )
    times = {**offsets, "startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    assert read_options(times, "batch").start == AtTimes(
        None, {TopicPartition("t", 0): 1000}, "startingOffsetsByTimestamp"
    )
    common = {**times, "startingTimestamp": "5"}
    assert read_options(common, "batch").start == AtTimes(5, {}, "startingTimestamp")


@pytest.mark.parametrize(
    ("mode", "options", "name"),
    [
        ("batch", {"startingOffsets": "latest"}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets"),
        ("batch", {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ("batch", {"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets"),
        ("stream", {"endingOffsets": "latest"}, "endingOffsets"),
        ("stream", {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger"),
    ],
)
def test_what_makes_no_sense_for_a_batch_or_a_stream_is_refused(
    mode: str, options: dict[str, str], name: str
):
    """A batch that begins at the end, a stream that ends."""
    (fault,) = faults({**READ, **options}, mode)
    assert fault.startswith(f"{name}:")


def test_settings_of_the_client_are_passed_on_without_their_prefix():
    """An option that is not the source's own decision is the user's."""
    options = read_options(
        {**READ, "kafka.security.protocol": "ssl", "kafka.isolation.level": "read_committed"}
    )
    assert options.client == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "ssl",
        "isolation.level": "read_committed",
    }


def test_either_name_of_the_servers_will_do_but_they_must_not_differ():
    """A job that is moved from one connector to the other keeps its options."""
    assert read_options({"raftlog.bootstrap.servers": "b:1", "subscribe": "t"}).client == {
        "bootstrap.servers": "b:1"
    }
    (fault,) = faults({**READ, "raftlog.bootstrap.servers": "b:1"})
    assert fault.startswith("raftlog.bootstrap.servers: differs")


def test_a_write_is_acknowledged_by_all_replicas_or_refused():
    """Rows that Spark writes must survive a node."""
    assert write_options({**SERVERS, "kafka.acks": "-1"}).client["acks"] == "-1"
    with pytest.raises(OptionFaults, match=r"kafka\.acks: 1"):
        write_options({**SERVERS, "kafka.acks": "1"})


def test_sparks_own_options_are_passed_over():
    """checkpointLocation reaches the sink as well."""
    assert write_options({**SERVERS, "checkpointLocation": "/x", "topic": "t"}).topic == "t"


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.engine.id",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.ca.location",
        "https.ca.location",
        "offset.store.path",
        "SSL.CA.Certificate.Stores",
    ],
)
def test_what_reaches_beyond_the_query_is_refused_unless_the_deployment_allows_it(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    """Code, commands, files and addresses: the author of a query must not choose them for the operator of the job."""
    monkeypatch.delenv("RAFTLOG_SPARK_ALLOW", raising=False)
    (fault,) = faults({**READ, f"kafka.{name}": "/tmp/x"})
    assert fault.startswith(f"kafka.{name.lower()}: it ")
    assert f"RAFTLOG_SPARK_ALLOW={name.lower()}" in fault
    with pytest.raises(OptionFaults, match="RAFTLOG_SPARK_ALLOW"):
        write_options({**SERVERS, f"kafka.{name}": "/tmp/x"})
    monkeypatch.setenv("RAFTLOG_SPARK_ALLOW", f"something.else, {name}")
    assert read_options({**READ, f"kafka.{name}": "/tmp/x"}).client[name.lower()] == "/tmp/x"


def test_ordinary_settings_of_the_client_are_taken(monkeypatch: pytest.MonkeyPatch):
    """Names, passwords and certificates that are given themselves."""
    monkeypatch.delenv("RAFTLOG_SPARK_ALLOW", raising=False)
    given = {
        "sasl.username": "u",
        "sasl.password": "p",
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "-----BEGIN",
        "client.rack": "a",
        "fetch.min.bytes": "1",
        "sasl.oauthbearer.scope": "s",
    }
    client = read_options({**READ, **{f"kafka.{name}": value for name, value in given.items()}}).client
    assert given.items() <= client.items()
