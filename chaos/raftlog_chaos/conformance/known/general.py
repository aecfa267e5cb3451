"""Differences that no history shows: those on purpose, and features that are not built."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known("not built", "logins by Kerberos"),
    Known("not built", "tiered storage, moving replicas between log directories"),
    Known(
        "not built",
        "streams groups, two-phase commit (KIP-939), the feature eligible.leader.replicas.version",
    ),
    Known("not built", "message formats before v2"),
    Known(
        "by design",
        "**`acks=all` is on disk** on every in-sync replica. [Durability](durability.md) explains more.",
    ),
    Known(
        "by design",
        "**Eligible leader replicas** (KIP-966) follow the level of `raftlog.metadata.version`. A crash does not end "
        "the eligibility, since what counts is on the disk. While no ISR member is in service, they are in the ISR. "
        "[The reasons](decisions/eligible-leaders.md).",
    ),
    Known(
        "by design",
        "**Topics have five configs that Apache Kafka lacks**: Confluent's four of schema validation, and "
        "`raftlog.schema.payload.validation`. [What they check](../howto/schemas.md#check-records-at-the-broker).",
    ),
    Known(
        "by design",
        "**Failures are noticed faster**: a broken connection is probed at once, and session timeouts are shorter. "
        "[The settings that differ](../howto/machines.md#configuration) are listed.",
    ),
    Known(
        "by design",
        "**Readers at a follower** (KIP-392) hear of each commit at once; Kafka's may wait for "
        "`replica.fetch.wait.max.ms`. A follower that has not heard of its leader for `replica.lag.time.max.ms` sends "
        "them back to it. Kafka's keeps them, without new records, until they ask the leader again after up to five "
        "minutes. `replica.selector.class` takes Kafka's two classes alone.",
    ),
    Known(
        "by design",
        "**The assignor `uniform`** gives members partitions with a replica in their rack where all shares stay even. "
        "Kafka's takes their racks and does not use them.",
    ),
    Known(
        "by design",
        "**Dead letters** (KIP-1191) are written exactly once, and a topic that fails is tried until the group has no "
        "room. Kafka 4.4 may write them twice, and gives up after a few attempts. A record of the dead-letter topic "
        "itself has none, nor has an offset without a record. A name that no topic can have is refused in the "
        "group's config. "
        "[The reasons](decisions/dead-letters.md).",
    ),
    Known("by design", "**Limits** exist where Kafka has none: [limits](limits.md)."),
    Known(
        "by design",
        "**Tokens are signed.** OAUTHBEARER requires a signature. Kafka accepts unsigned tokens by default.",
    ),
    Known(
        "by design",
        "**Quotas** ([how](../howto/quotas.md)) are Kafka's, but for four things. Use is counted when a request "
        "arrives, not when it is answered, so a client cannot overtake its quota by pipelining. A fetch response "
        "larger than the whole quota window is let through if the client has fetched no data recently. Kafka never "
        "lets it through. "
        "Producers with acks=0 wait for the time that they use too. 100 percent of time is a whole broker, which is "
        "one event loop. There is no `client.quota.callback.class`.",
    ),
    Known(
        "by design",
        "**A closed node does not start open.** Security settings that raftlog cannot carry out are errors, not "
        "ignored.",
    ),
    Known(
        "by design",
        "**Fenced brokers stay in the list of brokers for 30 seconds**, because librdkafka waits for ever for a "
        "coordinator that is missing there. An answer that names no topic lists live brokers only.",
    ),
    Known(
        "by design",
        "**Markers are written by brokers only**, so `kafka-transactions.sh --abort` is refused; [operators have "
        "their own way](../howto/transactions.md#transactions-that-hang).",
    ),
    Known("by design", "**A reassignment can always be cancelled back** to where it began."),
    Known(
        "by design",
        "**A waiting fetch is answered early** when another request follows it on its connection. Kafka "
        "lets that request wait until the fetch has what it asked for, or its time is over.",
    ),
    Known(
        "by design",
        "**Features that only Kafka has** (`eligible.leader.replicas.version`, "
        "`streams.version`) are passed over, with a warning, where all features go to a release's levels. So is "
        "`kraft.version`, which is raised by itself.",
    ),
    Known(
        "by design",
        "**Settings without effect** that Kafka changes at run time are stored, with a warning in the "
        "log. Those about security that raftlog cannot carry out are refused.",
    ),
    Known(
        "kafka's own fault",
        "A retried InitProducerId is answered after a failover, as in Kafka from 4.5 on: the record of a "
        "transactional id has the epoch before, in the tagged field 4.",
    ),
    Known(
        "by design",
        "**Coordinators do not compress**: `compression.type` of `__consumer_offsets` and `__transaction_state`, and "
        "`offsets.topic.compression.codec`, have no effect. All other topics get their codec from the leader, as in "
        "Kafka.",
    ),
    Known(
        "kafka's own fault",
        "A SyncGroup that comes while the group's coordinator loads has its member join again (REBALANCE_IN_PROGRESS). "
        "Kafka 4 answers COORDINATOR_LOAD_IN_PROGRESS, which ends Java's and aiokafka's consumers.",
    ),
    Known(
        "by design",
        "**The creation of a topic** is answered once the broker that was asked serves the partitions that it leads. "
        "Kafka's brokers make them after the answer, and refuse producers until then.",
    ),
)
