"""Reads topics for the assertions of a test, without a client library."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError, UnknownTopicOrPartition, from_code
from raftlog.client.cluster import Cluster
from raftlog.client.connection import Dialer
from raftlog.client.errors import Refused, Unreachable
from raftlog.client.fetching import Fetcher, Options
from raftlog.client.metadata import EARLIEST
from raftlog.security.sasl_client import Login as SaslLogin
from raftlog.testing.probe import Login
from raftlog.testing.progress import STALL_S, Stalled, Wait, patient

ANSWER_S: Final = 10.0
FETCH_WAIT_MS: Final = 50
MISSING_S: Final = 10.0
"""How long a topic that does not exist is waited for, unless the caller names a limit."""


class CannotRead(RuntimeError):
    """No broker answers, or the answer is an error that a later attempt does not cure."""


class ConsumedRecord(NamedTuple):
    """A record as a consumer gets it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read(
    addresses: Sequence[tuple[str, int]],
    topic: str,
    *,
    count: int = 0,
    timeout_s: float | None = None,
    login: Login | None = None,
) -> list[ConsumedRecord]:
    """Return all committed records of a topic by partition and offset, once there are at least `count`.

    Without `count`, all that there is now. Raises CannotRead, and Stalled if the records do not come: within
    `timeout_s` if it is given, else until nothing progresses. A missing topic is waited for that long, or `MISSING_S`.
    """
    answer_s = ANSWER_S if timeout_s is None else min(ANSWER_S, timeout_s)
    try:
        with (
            Cluster(addresses, _dialer(login), timeout_s=patient(answer_s)) as cluster,
            closing(Fetcher(cluster, Options(wait_ms=FETCH_WAIT_MS))) as fetcher,
        ):
            found = _read(cluster, fetcher, topic, count, timeout_s=timeout_s)
    except Stalled as error:
        if timeout_s is not None:
            raise
        raise Stalled(f"{error}; timeout=SECONDS waits longer", error.waited_s) from None
    except (KafkaError, Unreachable, Refused) as error:
        raise CannotRead(f"topic {topic} cannot be read: {error}") from None
    return sorted(found, key=lambda each: (each.partition, each.offset))


def _read(
    cluster: Cluster, fetcher: Fetcher, topic: str, count: int, *, timeout_s: float | None = None
) -> list[ConsumedRecord]:
    found: list[ConsumedRecord] = []
    partitions: list[int] = []
    reason = ""
    wait = Wait(
        f"waiting for {_records(count)} of topic {topic}",
        seen=lambda: _records(len(found)) if partitions else reason,
        stall_s=STALL_S if timeout_s is None else math.inf,
        limit_s=timeout_s,
    )
    while not partitions:
        try:
            partitions = _partitions(cluster, topic)
        except UnknownTopicOrPartition:
            reason = f"there is no topic {topic}"
            if not count:
                raise CannotRead(reason) from None
            if timeout_s is None and wait.waited_s >= patient(MISSING_S):
                waited = f"and none came in {wait.waited_s:.0f} s; timeout=SECONDS waits longer"
                raise CannotRead(f"{reason}, {waited}") from None
        except KafkaError as error:
            if not (count and error.retriable):
                raise
            reason = str(error)
        if not partitions:
            time.sleep(wait.pause())
    fetcher.assign(fetcher.offsets_at([(topic, each) for each in partitions], EARLIEST))
    unread = set(partitions)
    while unread or len(found) < count:
        for each in fetcher.poll(wait.pause()):
            if each.error is not None:
                raise each.error
            partition = each.at[1]
            found += [
                ConsumedRecord(partition, of.offset, of.timestamp, of.key, of.value, of.headers)
                for _, of in each.records
            ]
            if each.at_end:
                unread.discard(partition)
    return found


def _records(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def _partitions(cluster: Cluster, topic: str) -> list[int]:
    found = cluster.metadata([topic]).topics[topic]
    if found.error_code:
        raise from_code(found.error_code)
    return sorted(found.partitions)


def _dialer(login: Login | None) -> Dialer:
    if login is None:
        return Dialer()
    context = ssl.create_default_context(cafile=login.ca)
    return Dialer(context, lambda: SaslLogin(login.mechanism, login.user, login.password))
