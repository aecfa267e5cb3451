"""Differences that no history shows: those on purpose, and features that are not built."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known("not built", "logins by Kerberos"),
    Known("not built", "tiered storage, fetching from followers, moving replicas between log directories"),
    Known(
        "not built",
        "share groups and streams groups, two-phase commit (KIP-939), eligible leader replicas (KIP-966's ELR)",
    ),
    Known("not built", "a change of voters while the cluster runs"),
    Known("not built", "message formats before v2"),
    Known(
        "by design",
        "**`acks=all` is on disk** on every in-sync replica. [Durability](durability.md) tells more.",
    ),
    Known(
        "by design",
        "**Failures are noticed faster**: a broken connection is probed at once, and session timeouts are shorter. "
        "[The settings that differ](../howto/machines.md#configuration) are listed.",
    ),
    Known("by design", "**Limits** exist where Kafka has none: [limits](limits.md)."),
    Known(
        "by design",
        "**Tokens are signed.** OAUTHBEARER takes no token without a signature, which Kafka does unless it is told "
        "otherwise.",
    ),
    Known(
        "by design",
        "**Quotas** ([how](../howto/quotas.md)) are Kafka's, but for four things. Use is counted when a request "
        "arrives, not when it is answered, so a client cannot overtake its quota by pipelining. An answer to a fetch "
        "that is larger than all windows allow passes when nothing was fetched of late; in Kafka it never does. "
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
)
