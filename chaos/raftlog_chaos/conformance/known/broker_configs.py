"""Known differences in the configs of brokers."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.configs import JAVAS, NEGATIVE, NOT_BUILT, SMALL

USELESS: Final = (
    "**Settings of Kafka's that raftlog has no use for** are kept when they are set, and neither their values are "
    "looked at nor their defaults known. Until they are set DescribeConfigs leaves them out."
)
FIXED: Final = (
    "changes of listeners, of their security and of `ssl.*` while a broker runs (the files of certificates are read "
    "again when they change)"
)

KNOWN: Final = (
    Known(
        "not built",
        "intervals between assignments of a consumer group (`consumer.assignment.interval.ms`)",
        "broker-configs/changeable/group.consumer.assignment.interval.ms",
        path="answer*",
    ),
    Known(
        "by design",
        USELESS,
        "broker-configs/fixed/transaction.abort.timed.out.transaction.cleanup.interval.ms",
        path="answer.synonyms*",
        raftlog="(none)",
    ),
    Known(
        "by design",
        USELESS,
        "broker-configs/*",
        path="answer",
        raftlog="not known",
        ends=True,
    ),
    Known(
        "by design",
        "**Failures are noticed faster**: a broken connection is probed at once, and session timeouts are shorter. "
        "[The settings that differ](../howto/machines.md#configuration) are listed.",
        "broker-configs/fixed/broker.heartbeat.interval.ms broker-configs/fixed/broker.session.timeout.ms "
        "broker-configs/fixed/controller.quorum.election.timeout.ms broker-configs/fixed/replica.lag.time.max.ms",
        step="described",
    ),
    Known(
        "by design",
        "**High watermarks are written each second**, so that followers that restart recognize a leader that came "
        "back with an older copy of its log. [Why so](decisions/older-copies.md).",
        "broker-configs/fixed/replica.high.watermark.checkpoint.interval.ms",
        step="described",
    ),
    Known(
        "by design",
        "**Segments of `__consumer_offsets` and `__transaction_state`** have 4 MB, where Kafka's have 100 MB, so they "
        "are compacted sooner.",
        "broker-configs/fixed/offsets.topic.segment.bytes broker-configs/fixed/transaction.state.log.segment.bytes",
        step="described",
    ),
    Known(
        "by design",
        "**A node needs no settings**: it has defaults for its id, roles, voters, folders and listeners.",
        "broker-configs/fixed/node.id broker-configs/fixed/process.roles broker-configs/fixed/log.dirs "
        "broker-configs/fixed/controller.* broker-configs/fixed/advertised.listeners",
        step="described",
        path="answer.synonyms*",
    ),
    Known(
        "by design",
        "**A text that is not set** is shown as empty, where Kafka shows null or no default.",
        "broker-configs/*/ssl.* broker-configs/*/sasl.oauthbearer.* broker-configs/fixed/metadata.log.dir "
        "broker-configs/fixed/delegation.token.secret.key",
        step="described",
        path="answer.synonyms*",
    ),
    Known(
        "not built",
        "logins by Kerberos",
        "broker-configs/changeable/sasl.enabled.mechanisms",
        step="described",
        path="answer.synonyms*",
    ),
    Known(
        "by design",
        "**A map is described in the order of its table**; Kafka's order is that of a hash table.",
        "broker-configs/changeable/listener.security.protocol.map",
        step="described",
        path="answer.synonyms*",
    ),
    Known(
        "not built",
        FIXED,
        "broker-configs/changeable/ssl.* broker-configs/changeable/sasl.enabled.mechanisms "
        "broker-configs/changeable/listener*",
    ),
    Known(
        "not built",
        NOT_BUILT,
        "broker-configs/*/min.insync.replicas*",
        path="answer*",
    ),
    Known(
        "kafka's own fault",
        "A wrong value of a broker's config is answered with INVALID_CONFIG, as that of a topic's config is, and so is "
        "any value of a fixed one. Kafka answers INVALID_REQUEST.",
        "broker-configs/changeable/* broker-configs/fixed/*",
        path="answer.*",
        kafka="INVALID_REQUEST",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        SMALL,
        "broker-configs/changeable/log.segment.bytes",
        path="answer.*",
        kafka="INVALID_REQUEST",
        raftlog="NONE",
    ),
    Known(
        "kafka's own fault",
        JAVAS,
        "broker-configs/changeable/log.cleaner.min.cleanable.ratio",
        path="answer.*",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        "**Digits of other scripts** are read in fractions, as they are in whole numbers.",
        "broker-configs/changeable/log.cleaner.min.cleanable.ratio",
        path="answer.'?'",
        raftlog="NONE",
    ),
    Known(
        "kafka's own fault",
        NEGATIVE,
        "broker-configs/changeable/log.flush.interval.ms broker-configs/changeable/log.retention.*",
        path="answer.*",
        kafka="NONE",
        raftlog="INVALID_CONFIG",
    ),
    Known(
        "by design",
        "**An empty number** means that the setting is not set, where it has no default of its own.",
        "broker-configs/changeable/log.*.ms",
        path="answer.*'",
        kafka="INVALID_REQUEST",
        raftlog="NONE",
    ),
    Known(
        "by design",
        "**The bounds of a few settings differ**: `log.cleaner.backoff.ms` is at least 1, "
        "`log.cleaner.dedupe.buffer.size` may be small, and `max.connections.per.ip` may be 0.",
        "broker-configs/changeable/log.cleaner.backoff.ms broker-configs/changeable/log.cleaner.dedupe.buffer.size "
        "broker-configs/changeable/max.connections.per.ip",
        path="answer.*",
    ),
    Known(
        "by design",
        "**The synonyms of a broker's setting** are limited to its own name. Settings of the same meaning in another "
        "unit are described by themselves.",
        "broker-configs/life/*",
        path="answer.synonyms*",
        raftlog="(none)",
    ),
)
