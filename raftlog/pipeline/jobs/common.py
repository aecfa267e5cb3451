"""The options that all jobs share, and their translation into a Spark reader's options. Pure.

The names of reader options are those of Spark's Kafka source for both connectors, so a job differs in `format()` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse

from raftlog.pipeline.jobs.settings import setting

Connector = Literal["raftlog", "kafka"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The records that a job reads, their cluster, and the Spark master."""

    topics: tuple[str, ...] = setting("topics to read", ())
    topic_pattern: str = setting("or all topics whose whole name matches this regular expression", "")
    bootstrap: str = setting("host:port of any node, or several", "localhost:9092")
    connector: Connector = setting(
        "raftlog: the Python source that came along; kafka: Spark's own, needs four jars", "raftlog"
    )
    client: tuple[str, ...] = setting("NAME=VALUE for the connector's Kafka client", (), secret=True)
    master: str = setting("Spark's master: local[2], spark://host:7077, yarn, … (default: Spark's own)", "")
    conf: tuple[str, ...] = setting("NAME=VALUE for Spark", (), secret=True)

    def faults(self) -> list[str]:
        """Return what is wrong between options."""
        found = []
        if bool(self.topics) == bool(self.topic_pattern):
            found.append("topics: give either topics or topic_pattern")
        return found + pair_faults("client", self.client) + pair_faults("conf", self.conf)

    @property
    def subscription(self) -> dict[str, str]:
        return (
            {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": self.topic_pattern}
        )

    def reader_options(self) -> dict[str, str]:
        """Return the options for `spark.read` and `spark.readStream` of either connector."""
        client = pairs(self.client)
        return {
            **{f"kafka.{name}": value for name, value in client.items()},
            "kafka.bootstrap.servers": self.bootstrap,
            "includeHeaders": "true",
            **self.subscription,
        }


@dataclass(frozen=True, kw_only=True)
class StreamOptions(SourceOptions):
    """A job that reads on from where its checkpoint says."""

    checkpoint: str = setting("folder that remembers how far this job has come, on a disk that all share")
    start: str = setting(
        "where the first run begins: earliest, latest, or offsets as JSON, as Spark's startingOffsets",
        "earliest",
    )
    every: float = setting(
        "seconds between batches, until stopped; 0: read up to the end as it is now, then stop", 0.0, least=0
    )
    max_records: int = setting("records in one batch at most", 500_000, least=1)
    fail_on_data_loss: bool = setting("stop when records not yet read are gone from the log", True)

    def faults(self) -> list[str]:
        found = super().faults()
        if self.start not in ("earliest", "latest") and not _is_offsets(self.start):
            found.append(
                f'start: {self.start!r} is none of earliest, latest or JSON like {{"topic":{{"0":23}}}}'
            )
        return found + path_faults("checkpoint", self.checkpoint)

    def reader_options(self) -> dict[str, str]:
        return {
            **super().reader_options(),
            "startingOffsets": self.start,
            "maxOffsetsPerTrigger": str(self.max_records),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }


def named(text: str) -> tuple[str, str] | None:
    """Return the two halves of NAME=VALUE, or None."""
    name, equals, value = text.partition("=")
    return (name.strip(), value.strip()) if equals and name.strip() else None


def pair_faults(option: str, texts: Iterable[str]) -> list[str]:
    """Return a fault for each text that is not NAME=VALUE. It is not quoted: it may be a password."""
    return [f"{option}: a value is not NAME=VALUE" for each in texts if not named(each)]


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the texts of the form NAME=VALUE as pairs; the last of a name wins."""
    return dict(filter(None, map(named, texts)))


def _is_offsets(text: str) -> bool:
    try:
        offsets = json.loads(text)
    except ValueError:
        return False
    return isinstance(offsets, dict) and all(isinstance(each, dict) for each in offsets.values())


def path_faults(name: str, path: str) -> list[str]:
    """Return what is wrong with a folder: only disks that driver and executors all see are built."""
    scheme = urlparse(path).scheme
    if scheme not in ("", "file"):
        return [f"{name}: {scheme}: is not built, give a path on a disk that driver and executors share"]
    return []


def local_path(path: str) -> Path:
    """Return a path or file: URL as an absolute path."""
    return Path(urlparse(path).path if path.startswith("file:") else path).absolute()
