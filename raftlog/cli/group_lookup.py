"""A group as its coordinator describes it: whether it is there, its state, its members, how far it has read."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, Final

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.target import Admin, Target

PartitionKey = tuple[str, int]
NAMED: Final = 5
"""Members named in a message."""


def described(admin: Admin, name: str) -> Any:
    """Return librdkafka's description of a group. Raises Failure, also when there is no such group."""
    found = looked_up(admin, name)
    if found is None:
        raise Failure(f"there is no group {name}", exits.NOT_FOUND)
    return found


def looked_up(admin: Admin, name: str) -> Any:
    """Return librdkafka's description of a group, None when there is none. Raises Failure."""
    (future,) = admin.ask(admin.client.describe_consumer_groups, [name]).values()
    found = admin.wait(future, f"{name}: ", needs="DESCRIBE")
    return None if found.state.name == "DEAD" else found


def states(target: Target, found: Collection[Any]) -> dict[str, str]:
    """Return the states of groups that were listed or described, by group.

    librdkafka has no names for KIP-848's states (assigning, reconciling): then every broker is asked again.
    """
    known = {each.group_id: each.state.name.lower() for each in found}
    if "unknown" not in known.values() or target.settings:  # kafka-python would not have those settings
        return known
    try:
        listed = target.ask_kafka_python(lambda client: client.list_groups())
    except Failure as failure:
        print(f"raftlog: some states are not known: {failure}", file=sys.stderr)
        return known
    return named(known, {each["group_id"]: each["group_state"] for each in listed})


def named(known: Mapping[str, str], listed: Mapping[str, str]) -> dict[str, str]:
    """Return `known`, with the states that are unknown there as the brokers `listed` them, in Kafka's words."""
    return {
        group: listed.get(group, state).lower() if state == "unknown" else state
        for group, state in known.items()
    }


def committed(admin: Admin, name: str) -> dict[PartitionKey, int]:
    """Return a group's committed offsets by partition. Raise Failure."""
    library = confluent_kafka()
    request = [library.ConsumerGroupTopicPartitions(name)]
    (future,) = admin.ask(admin.client.list_consumer_group_offsets, request).values()
    found = admin.wait(future, f"{name}: ", needs="DESCRIBE").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def in_use(found: Any) -> str:
    """Return why a group with members can't be changed, in words; "" when it has none."""
    if not found.members:
        return ""
    names = [each.group_instance_id or each.member_id for each in found.members]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    count = "a member" if len(names) == 1 else f"{len(names)} members"
    static = any(each.group_instance_id for each in found.members)
    waits = "; static ones are members until their session ends" if static else ""
    return f"group {found.group_id} has {count} ({', '.join(names[:NAMED])}{more}): stop them first{waits}"
