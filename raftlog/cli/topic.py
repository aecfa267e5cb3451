"""`raftlog topic …`, on librdkafka's admin client."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from raftlog.cli import exits
from raftlog.cli.librdkafka import client_settings, confluent_kafka, exit_of, open_client

TIMEOUT_S = 10.0


class Admin:
    """An admin client, and how its failures are told."""

    def __init__(self, bootstrap: str, settings: Sequence[str]) -> None:
        self.client, self._troubles = open_client("AdminClient", bootstrap, defaults={}, settings=settings)

    def report(self, error: Any, *, about: str = "") -> int:
        """Print why a call failed; returns the exit code."""
        kafka_error = error.args[0]
        print(f"raftlog: {about}{self._troubles.explain(kafka_error, self.client)}", file=sys.stderr)
        return exit_of(kafka_error)


def create(
    admin: Admin, names: Sequence[str], partitions: int, *, replicas: int, configs: Sequence[str]
) -> int:
    """Create topics; returns the exit code."""
    new_topic = confluent_kafka().admin.NewTopic
    settings = client_settings(configs)
    topics = [
        new_topic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
        for name in names
    ]
    return _report(
        admin,
        "created",
        lambda: admin.client.create_topics(topics, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S),
    )


def delete(admin: Admin, names: Sequence[str]) -> int:
    """Delete topics; returns the exit code."""
    return _report(
        admin,
        "deleted",
        lambda: admin.client.delete_topics(
            list(names), operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
        ),
    )


def _report(admin: Admin, done: str, call: Callable[[], Mapping[str, Any]]) -> int:
    """Print what became of each topic; returns the first failure's exit code."""
    code = 0
    for name, future in call().items():
        try:
            future.result(TIMEOUT_S + 5)
        except confluent_kafka().KafkaException as error:
            failure = admin.report(error, about=f"{name}: ")
            code = code or failure
        else:
            print(f"{name} {done}")
    return code


def list_topics(admin: Admin, *, json: bool) -> int:
    """Print all topics; returns the exit code."""
    topics = _metadata(admin)
    if isinstance(topics, int):
        return topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(each.replicas) for each in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(topics.items())
    ]
    _print_rows(rows, json=json, columns=("topic", "partitions", "replication_factor"))
    return 0


def describe(admin: Admin, name: str, *, json: bool) -> int:
    """Print a topic's partitions; returns the exit code."""
    topics = _metadata(admin)
    if isinstance(topics, int):
        return topics
    if name not in topics:
        print(f"raftlog: there is no topic {name}", file=sys.stderr)
        return exits.NOT_FOUND
    rows = [
        {"partition": each.id, "leader": each.leader, "replicas": list(each.replicas), "isr": list(each.isrs)}
        for each in sorted(topics[name].partitions.values(), key=lambda each: each.id)
    ]
    _print_rows(rows, json=json, columns=("partition", "leader", "replicas", "isr"))
    return 0


def _metadata(admin: Admin) -> dict[str, Any] | int:
    """Return all topics by name, or the exit code when no broker answered."""
    try:
        topics: dict[str, Any] = admin.client.list_topics(timeout=TIMEOUT_S).topics
    except confluent_kafka().KafkaException as error:
        return admin.report(error)
    return topics


def _print_rows(rows: Iterable[Mapping[str, Any]], *, json: bool, columns: Sequence[str]) -> None:
    if json:
        print(json_module.dumps(list(rows)))
        return
    table = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
