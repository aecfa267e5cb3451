"""The figures of one scrape of the metrics, gathered in slices before they are written as text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from raftlog.admin.cluster_summary import PartitionHealths, Survey
from raftlog.admin.exposition import labels
from raftlog.admin.facts import Facts, GroupFacts, PartitionFacts, ShareLag, SharePartitionFacts
from raftlog.admin.loop_lag import LoopLag
from raftlog.admin.view import NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.base.turns import each_part
from raftlog.base.types import TopicPartition
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.partition_health import PartitionHealth

GROUPS_S: Final = 1.0
"""Timeout for the groups. Their state is returned only once it is committed."""

log = get_logger("admin")


class Row(NamedTuple):
    """A replica on this node. `state` is its partition in the metadata; `labels` are its labels in the metrics."""

    labels: str
    name: TopicPartition
    state: PartitionState | None
    facts: PartitionFacts
    health: PartitionHealth | None


@dataclass(slots=True)
class Scrape:
    """The figures of one scrape. `tells`: whether this node exports the metrics of the whole cluster."""

    node: NodeView
    facts: Facts
    survey: Survey
    rows: list[Row]
    led: list[Row]
    groups: list[GroupFacts]
    lag: LoopLag
    tells: bool
    ends: dict[tuple[str, int], int]
    """The high watermark of each partition with a replica here."""
    shares: list[SharePartitionFacts]
    """The partitions of share groups that this node leads."""
    share_lags: list[ShareLag]

    def lags(self) -> Iterator[tuple[str, str, int, int | None]]:
        """Yield (group, topic, partition, lag) of each committed offset. The lag is None without a replica here."""
        for group in self.groups:
            for (topic, partition), offset in group.offsets.items():
                end = self.ends.get((topic, partition))
                yield group.group_id, topic, partition, None if end is None else max(0, end - offset)


async def gather(node: NodeView, facts: Facts, lag: LoopLag) -> Scrape:
    """Gather all figures, in slices between which the event loop runs other work."""
    image = node.image()
    found = await node.survey_of(image)
    tells = image.controller_id == node.config.node_id
    row_of = partial(_row, image, PartitionHealths(node.config, image), facts)
    rows = [each for each in await each_part(node, facts.partition_names(), row_of) if each is not None]
    shares = await each_part(node, facts.share_keys(), facts.share_partition, size_of=facts.share_parts)
    share_lags = await each_part(node, facts.share_state_keys(), facts.share_lag)
    return Scrape(
        node,
        facts,
        found,
        rows,
        [each for each in rows if each.facts.leads],
        await _groups(facts),
        lag,
        tells,
        {each.name: each.facts.high_watermark for each in rows},
        [each for each in shares if each is not None],
        [each for each in share_lags if each is not None],
    )


def _row(image: MetadataImage, healths: PartitionHealths, facts: Facts, name: TopicPartition) -> Row | None:
    each = facts.partition(name)
    if each is None:
        return None
    state = image.partition(*name)
    health = None if state is None else healths.of(name.topic, state)
    return Row(labels(topic=name.topic, partition=name.partition), name, state, each, health)


async def _groups(facts: Facts) -> list[GroupFacts]:
    try:
        async with asyncio.timeout(GROUPS_S):
            return await facts.groups()
    except (KafkaError, TimeoutError) as error:
        log.info("group_metrics_failed", reason=str(error) or "no majority in time")
        return []
