"""Claims about the survey of a cluster: it judges each partition as its leader does."""

from __future__ import annotations

from uuid import UUID

from raftlog.admin.cluster_summary import Survey, survey
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.metadata.image import BrokerState, MetadataImage, PartitionState, TopicState

ID = UUID(int=1)


async def judged(state: PartitionState, **configs: dict[str, str]) -> Survey:
    """Survey one partition of topic `t` under the configs of `topic`, of `all` brokers and of `broker` 1."""
    keys = {"topic": ("topic", "t"), "all": ("broker", ""), "broker": ("broker", "1")}
    image = MetadataImage(
        topics={"t": TopicState("t", ID, (state,))},
        topic_names={ID: "t"},
        configs={keys[name]: each for name, each in configs.items()},
    )
    return await survey(load_config(), image)


TWO = {"min.insync.replicas": "2"}
ONE_OF_THREE = PartitionState((1, 2, 3), (1,), 1)


async def test_a_partition_that_refuses_acks_all_is_counted() -> None:
    """By the topic's config, the config of all brokers, or the config of the leader."""
    for configs in ({"topic": TWO}, {"all": TWO}, {"broker": TWO}, {"topic": TWO, "all": {}}):
        assert (await judged(ONE_OF_THREE, **configs)).under_min_isr.count == 1, configs
    own = {"min.insync.replicas": "1"}
    assert (await judged(ONE_OF_THREE, all=TWO, broker=own)).under_min_isr.count == 0
    assert (await judged(ONE_OF_THREE, topic=own, all=TWO, broker=TWO)).under_min_isr.count == 0


async def test_a_partition_that_its_leader_serves_is_not_called_too_few_in_sync() -> None:
    """One replica cannot be two in sync. While two more are added, the first replica still suffices."""
    alone = PartitionState((1,), (1,), 1)
    assert (await judged(alone, all=TWO)).under_min_isr.count == 0
    grows = PartitionState((1, 2, 3), (1,), 1, adding_replicas=(2, 3))
    found = await judged(grows, topic=TWO)
    assert (found.under_min_isr.count, found.at_min_isr.count, found.under_replicated.count) == (0, 1, 1)


async def test_a_broker_that_could_lead_more_of_its_partitions_is_deprived() -> None:
    """By the controller's rule (KIP-183); a broker that is down, drained, leaving or not in sync cannot lead them."""
    led = [PartitionState((1, 2), (1, 2), 1)] * 9
    taken = PartitionState((1, 2), (1, 2), 2)

    async def deprived(*more: PartitionState, percentage: int = 10, **broker: bool) -> dict[int, int]:
        one, two = (
            BrokerState(each, each, UUID(int=each), (), **({"fenced": False} | (broker if each == 1 else {})))
            for each in (1, 2)
        )
        topics = {"t": TopicState("t", ID, (*led, *more))}
        image = MetadataImage(topics=topics, topic_names={ID: "t"}, brokers={1: one, 2: two})
        return (await survey(load_config(), image)).deprived(percentage)

    assert await deprived() == {}
    assert await deprived(taken) == {}, "a tenth is not more than a tenth"
    assert await deprived(taken, percentage=9) == {1: 1}
    assert await deprived(taken, taken) == {1: 2}
    assert await deprived(taken, taken, PartitionState((1, 2), (2,), 2)) == {1: 2}
    for state in ({"fenced": True}, {"draining": True}, {"in_controlled_shutdown": True}):
        assert await deprived(taken, taken, **state) == {}, state


async def test_an_image_is_surveyed_once_however_many_ask() -> None:
    """Health, lists, metrics and samples ask every few seconds; only other metadata makes another survey."""
    image = MetadataImage()
    node = NodeView(load_config(), lambda: image, list, lambda: 0.0)
    first = await node.survey_of(image)
    assert await node.survey_of(image) is first
    changed = MetadataImage(topics={"t": TopicState("t", ID, (ONE_OF_THREE,))}, topic_names={ID: "t"})
    found = await node.survey_of(changed)
    assert (found.partitions, found.under_replicated.by_topic["t"], found.leaderless.by_topic["t"]) == (
        1,
        1,
        0,
    )
