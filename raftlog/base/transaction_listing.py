"""Transactions in brokers' responses to operators and in the HTTP API. Not: the requests."""

from __future__ import annotations

import msgspec


class TransactionalId(msgspec.Struct, order=True):
    """`state` in Kafka's words: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.

    `start_ms`: when its transaction began, wall clock; it and `timeout_ms` are -1 without an open transaction.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    start_ms: int
    timeout_ms: int


class WrittenTo(msgspec.Struct, frozen=True, order=True):
    """A partition."""

    topic_name: str
    partition_id: int


class DescribedId(msgspec.Struct):
    """`start_ms`: when its transaction began, wall clock, -1 without an open transaction. `partitions`: the partitions
    that it wrote to.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[WrittenTo]


class Hanging(
    msgspec.Struct,
    rename={"topic": "topic_name", "partition": "partition_id", "last_timestamp": "last_ms"},
):
    """An open transaction in a partition since `start_offset`. `last_ms`: when its producer wrote there last, by its
    clock.

    `last_sequence`: of what it wrote last, -1 for offsets of groups.
    """

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    last_sequence: int
