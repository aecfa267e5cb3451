"""The admin API asks the controller to move leaderships."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.admin.leaderships import drain, transfer_leadership, undrain
from raftlog.base.errors import BrokerIdNotRegistered, EligibleLeadersNotAvailable, from_code
from raftlog.metadata.controller_api import BrokerDrain, ErrorReply
from tests.controller.controller_cluster import ControllerCluster, started


class Ask:
    """A node's `submit`, with a controller behind it."""

    def __init__(self, controllers: ControllerCluster) -> None:
        self.cluster = controllers

    async def __call__(self, request: Any, *, timeout: float | None = None) -> Any:
        reply = self.cluster.ask(request)
        if isinstance(reply, ErrorReply):
            raise from_code(reply.error_code, reply.message)
        return reply


@pytest.fixture
def controllers() -> ControllerCluster:
    return started(1, 2, 3, t=((1, 2, 3), (1, 3, 2)))


async def test_a_drained_broker_leads_again_once_that_is_undone(controllers: ControllerCluster) -> None:
    """The response lists what remains; the metadata image carries the drain to all nodes."""
    controllers.alter("t", (1,), partition=1)
    assert await drain(Ask(controllers), 1) == BrokerDrain(1, True, 1)
    assert controllers.image.brokers[1].draining
    assert await undrain(Ask(controllers), 1) == BrokerDrain(1, False, 1)
    assert not controllers.image.brokers[1].draining
    with pytest.raises(BrokerIdNotRegistered):
        await drain(Ask(controllers), 9)


async def test_transfer_to_a_replica_by_name(controllers: ControllerCluster) -> None:
    """A refusal by the controller is raised with its words."""
    await transfer_leadership(Ask(controllers), "t", 0, 3)
    assert controllers.partition("t").leader == 3
    controllers.alter("t", (3, 1))
    with pytest.raises(EligibleLeadersNotAvailable, match=r"broker 2 .*\[1, 3\]"):
        await transfer_leadership(Ask(controllers), "t", 0, 2)
