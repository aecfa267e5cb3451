"""Known differences in the configs of topics, groups and client metrics."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

NOT_BUILT: Final = "streams groups, two-phase commit (KIP-939), the feature eligible.leader.replicas.version"
SMALL: Final = "**Segments may be smaller than 1 MB**, down to 14 bytes, as in Kafka before 4.0."
JAVAS: Final = "Numbers in Java's own notation, such as 1d and 0.5f, and NaN are refused."
NEGATIVE: Final = "A retention below -1 is refused; Kafka takes any negative number for no limit."
SYNONYMS: Final = (
    "DescribeConfigs lists the default of every config among its synonyms. Kafka leaves it out for configs that have "
    "no setting of brokers, or one of another unit."
)

UNKNOWN_OPERATION: Final = (
    "An operation on a config that does not exist is answered with INVALID_REQUEST, in Kafka with "
    "UNKNOWN_SERVER_ERROR."
)

KNOWN: Final = (
    Known(
        "not built",
        NOT_BUILT,
        "configs/group-*/share.assignment.interval.ms configs/group-*/streams.*",
        ends=True,
    ),
    Known(
        "not built",
        "intervals between assignments of a consumer group (`consumer.assignment.interval.ms`)",
        "configs/group-*/consumer.assignment.interval.ms",
        ends=True,
    ),
    Known(
        "not built",
        NOT_BUILT,
        "configs/topic-life/min.insync.replicas",
        path="answer.*",
    ),
    Known(
        "kafka's own fault", SYNONYMS, "configs/topic-life/* configs/metrics-life/*", path="answer.synonyms*"
    ),
    Known(
        "by design",
        SMALL,
        "configs/topic-values/segment.bytes",
        path="answer.*",
        kafka="INVALID_CONFIG",
        raftlog="NONE",
    ),
    Known(
        "kafka's own fault",
        JAVAS,
        "configs/topic-values/min.cleanable.dirty.ratio",
        path="answer.*",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        "**Digits of other scripts** are read in fractions, as they are in whole numbers.",
        "configs/topic-values/min.cleanable.dirty.ratio",
        path="answer.'?'",
        kafka="INVALID_CONFIG",
        raftlog="NONE",
    ),
    Known(
        "kafka's own fault",
        NEGATIVE,
        "configs/topic-values/retention.bytes",
        path="answer.*",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "kafka's own fault",
        "Empty items are refused in every list. Kafka passes over them in lists of throttled replicas.",
        "configs/topic-values/*.replication.throttled.replicas",
        path="answer.*",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "kafka's own fault",
        UNKNOWN_OPERATION,
        "configs/incremental/operation?*",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "Wrong configs of client metrics are answered with INVALID_CONFIG, like topic configs; Kafka answers "
        "INVALID_REQUEST.",
        "configs/metrics-values/interval.ms configs/incremental/*metrics* configs/replacing/metrics*",
        path="answer*",
        kafka="INVALID_REQUEST",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "kafka's own fault",
        "The lists of client metrics can be appended to and subtracted from; Kafka says that they are no lists.",
        "configs/metrics-values/match configs/metrics-values/metrics",
        step="other operations",
        kafka="INVALID_CONFIG",
        raftlog="NONE",
    ),
    Known(
        "by design",
        "**A resource that a request names twice** is answered once.",
        "configs/describe/a?topic?twice configs/incremental/a?topic?twice configs/incremental/in?v0",
        path="answer.re*.1",
        raftlog="(none)",
    ),
    Known(
        "kafka's own fault",
        "An AlterConfigs request that names a resource twice is refused; Kafka never answers it.",
        "configs/replacing/a?topic?twice",
        path="answer",
        kafka="no answer",
    ),
    Known(
        "by design",
        "**Limits** exist where Kafka has none: [limits](limits.md).",
        "configs/many/a?hundred?and?one",
        path="answer",
        kafka="INVALID_CONFIG",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "by design",
        "**The configs of any broker are altered through any broker**, so one that is not there is answered with "
        "BROKER_ID_NOT_REGISTERED.",
        "configs/incremental/an?unknown?broker configs/incremental/a?broker* configs/replacing/an?unknown?broker",
        path="answer.*.error_code",
        kafka="INVALID_REQUEST",
        raftlog="BROKER_ID_NOT_REGISTERED",
    ),
    Known(
        "kafka's own fault",
        "Configs of brokers that do not exist are refused; Kafka stores them.",
        "configs/incremental/an?unknown?config?of?a?broker configs/incremental/an?unknown?config?of?all?brokers "
        "configs/replacing/an?unknown?config?of?all?brokers",
        path="answer.*.error_code",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "not built",
        "changes of the limits of one listener while a broker runs",
        "configs/incremental/a?prefixed?config?of?a?broker",
        path="answer.*.error_code",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        "**Loggers have names of their own**: the topmost one is `raftlog`, and there is no `root`.",
        "configs/incremental/delete?the?root?logger",
        path="answer.*.error_code",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        "**Configs of topics that Kafka 4.3 has no more, or does not describe yet,** are described, without effect.",
        "configs/topic-names",
        path="answer.*",
        kafka="(default)",
        raftlog="described",
    ),
    Known(
        "kafka's own fault",
        UNKNOWN_OPERATION,
        "generated/*",
        step="IncrementalAlterConfigs*",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "by design",
        "**Settings of a topic that is not there** are answered with UNKNOWN_TOPIC_OR_PARTITION, whatever they are. "
        "Kafka looks at the values first.",
        "generated/*",
        step="IncrementalAlterConfigs*",
        path="answer.responses.*.error_code",
        kafka="INVALID_CONFIG",
        raftlog="UNKNOWN_TOPIC_OR_PARTITION",
    ),
)
