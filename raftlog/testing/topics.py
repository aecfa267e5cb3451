"""Creates topics for tests, over the wire."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.testing.probe import Login, NewTopic, create_topic, view_topic
from raftlog.testing.progress import wait_until


class TopicRefused(RuntimeError):
    """The cluster did not create a topic; the message has the broker's reason."""


def create(addresses: Sequence[tuple[str, int]], topic: NewTopic, *, login: Login | None = None) -> None:
    """Create a topic through the first node that answers, and wait until each partition has a leader.

    Raises TopicRefused, OSError if no node answers, and Stalled if there are no leaders.
    """
    host, port = _ask_first(addresses, topic, login)

    def is_led() -> bool:
        found = view_topic(host, port, topic.name, login=login)
        return len(found) == topic.partitions and all(each.leader >= 0 for each in found.values())

    wait_until(is_led, f"topic {topic.name} has leaders")


def _ask_first(addresses: Sequence[tuple[str, int]], topic: NewTopic, login: Login | None) -> tuple[str, int]:
    """Return the address of the node that created the topic."""
    failure = OSError("there is no node to ask")
    for host, port in addresses:
        try:
            refused = create_topic(host, port, topic, login=login)
        except OSError as error:
            failure = error
            continue
        if refused:
            raise TopicRefused(f"topic {topic.name} was not created: {refused}")
        return host, port
    raise failure
