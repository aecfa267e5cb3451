"""Share groups while `share.version` is 0: a topic of their name, perhaps from an older release, is left alone."""

from __future__ import annotations

import msgspec

from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    CreateTopics,
    FeatureUpdate,
    NewTopic,
    UpdateFeatures,
)
from raftlog.metadata.features import SHARE_VERSION
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster


def test_a_topic_is_coordinated_only_once_share_groups_are_on() -> None:
    """Its coordinators delete what is no state; once they may, they begin although the topic is not new."""

    async def program(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1, settings={"min.insync.replicas": "1"})
        cluster.start()
        await cluster.until_ready()
        node = cluster.nodes[1].node
        assert node is not None and node.broker is not None
        off = UpdateFeatures((FeatureUpdate(SHARE_VERSION, 0, SAFE_DOWNGRADE),))
        await cluster.nodes[1].host.start(node.control.submit(off, timeout=5))
        create = CreateTopics((NewTopic(SHARE_GROUP_STATE_TOPIC, 1, 1),))
        await cluster.nodes[1].host.start(node.control.submit(create, timeout=5))
        await cluster.until(lambda: cluster.state(SHARE_GROUP_STATE_TOPIC, 0) is not None, 10, "the topic")
        broker, image = node.broker, cluster.last_image()
        assert broker.context.made_share_states is None
        is_on = msgspec.structs.replace(image, features={**image.features, SHARE_VERSION: 1})

        async def turned_on() -> None:
            broker._on_metadata(image, is_on)

        await cluster.nodes[1].host.start(turned_on())
        made = broker.context.made_share_states
        assert made is not None and [each.index for each in made._shards.all()] == [0]

    simulate(program)
