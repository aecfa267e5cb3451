"""confluent-kafka, for commands that load a cluster with a stock client: demo, bench, chaos, compare, pipeline demo."""

from __future__ import annotations

from typing import Any

from raftlog.cli.exits import Failure


def confluent_kafka() -> Any:
    """Return the client library. Raise Failure with what to install when it is not there."""
    try:
        import confluent_kafka.admin
    except ImportError:
        raise Failure("this needs a Kafka client: pip install confluent-kafka") from None
    return confluent_kafka
