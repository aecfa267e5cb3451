"""The differences between Apache Kafka 4.3 and raftlog that are known, each with its reason.

A difference that a history shows and this list does not have is a failure, and so is an entry that no history shows any
more. The page `docs/pages/explanation/kafka.md` is made of this list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from raftlog_chaos.conformance.compare import Difference

Kind = Literal["by design", "kafka's own fault", "not built", "open"]
"""`open` is for a fault of raftlog's that is not mended yet: `--strict` fails for it, and the page leaves it out."""


class Known(NamedTuple):
    """A difference and its reason, which is a sentence of the page. Patterns are those of file names: `*` is anything.

    `histories` are labels with spaces between; none: no history can show it. `step` is what was asked, `path` leads to
    the value, `kafka` and `raftlog` are the two values as text. With `ends`, what comes later in such a history follows
    from it, and is not judged.
    """

    kind: Kind
    why: str
    histories: str = ""
    path: str = "*"
    step: str = "*"
    kafka: str = "*"
    raftlog: str = "*"
    ends: bool = False

    def is_about(self, labels: Iterable[str]) -> bool:
        """Whether one of these histories should show the difference."""
        return any(fnmatchcase(label, each) for label in labels for each in self.histories.split())

    def explains(self, difference: Difference) -> bool:
        """Whether this entry is about a difference."""
        return (
            self.is_about([difference.history])
            and fnmatchcase(difference.path, self.path)
            and fnmatchcase(difference.asked, self.step)
            and fnmatchcase(str(difference.kafka), self.kafka)
            and fnmatchcase(str(difference.other), self.raftlog)
        )


KNOWN: Final[tuple[Known, ...]] = (
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
    Known(
        "by design",
        "**Bits of a batch that only brokers set** are refused: the time type LogAppendTime, and the delete horizon. "
        "Kafka stores such batches.",
        "produce/header/attributes=8 produce/header/attributes=64",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="INVALID_*",
        ends=True,
    ),
    Known(
        "by design",
        "**Records that cannot be decompressed** are stored with their batch, where its records are not walked; Kafka "
        "answers UNKNOWN_SERVER_ERROR.",
        "produce/header/attributes=[1-4]",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="NONE",
        ends=True,
    ),
    Known(
        "by design",
        "**A largest timestamp above those of the records** is believed where the records are not walked.",
        "produce/header/base_timestamp=0",
        path="answer.records.*.max_timestamp",
    ),
    Known(
        "by design",
        "**Bytes after a batch** that are no whole batch are refused. Kafka drops them in silence.",
        "produce/shape/a?byte?too?many",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="INVALID_RECORD",
        ends=True,
    ),
    Known(
        "by design",
        "**A topic without partitions** in a Produce request stands in the answer, as it does in other APIs. Kafka "
        "leaves it out.",
        "produce/shape/no?partition",
        path="answer",
        kafka="(default)",
    ),
    Known(
        "kafka's own fault",
        "A codec that does not exist is answered with UNSUPPORTED_COMPRESSION_TYPE, in Kafka with "
        "UNKNOWN_SERVER_ERROR.",
        "produce/header/attributes=[57]",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="UNSUPPORTED_COMPRESSION_TYPE",
    ),
    Known(
        "kafka's own fault",
        "A batch whose length goes beyond 32 bits is answered with INVALID_RECORD, as any batch that is cut off, in "
        "Kafka with UNKNOWN_SERVER_ERROR.",
        "produce/header/batch_length=2147483647",
        path="answer.responses.*",
    ),
    Known(
        "kafka's own fault",
        "A partition with records of null is refused; Kafka never answers the request.",
        "produce/shape/records?of?null",
        path="answer",
        kafka="no answer",
    ),
    Known(
        "kafka's own fault",
        "A partition that a request names twice gets its first batch, and the second one is refused. Kafka stores the "
        "second one only, and answers once.",
        "produce/shape/a?partition?twice",
    ),
    Known(
        "open",
        "`compression.type` of a topic has no effect.",
        "produce/config/gzip produce/config/uncompressed",
        path="answer.records.*.attributes",
    ),
    Known(
        "kafka's own fault",
        "A batch that was sent again is answered with a log append time, though the topic has the producers' own "
        "times. raftlog answers it as it answered the first time.",
        "idempotence/*",
        path="answer.responses.*.log_append_time",
        kafka="start*",
        raftlog="(default)",
    ),
)


class Judged(NamedTuple):
    """The differences of one history that no entry explains, and the entries that explain others."""

    unknown: list[Difference]
    used: list[Known]


def judge(found: Iterable[Difference], known: Sequence[Known] = KNOWN) -> Judged:
    """Part the differences of one history, in their order, into known ones and others."""
    unknown: list[Difference] = []
    used: list[Known] = []
    for each in found:
        entry = next((entry for entry in known if entry.explains(each)), None)
        if entry is None:
            unknown.append(each)
            continue
        used.append(entry)
        if entry.ends:
            break
    return Judged(unknown, used)
