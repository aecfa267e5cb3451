"""The type of a row in the controller's table of requests, and the state that its decisions may read.

The rows themselves are in `requests`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.machine import Decision
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.eligible_leaders import MinInsync
from raftlog.controller.leader_and_isr import UncleanRule
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.causes import Cause
from raftlog.metadata.controller_api import Reply, Request
from raftlog.metadata.image import MetadataImage, SupportedFeature

if TYPE_CHECKING:
    from raftlog.controller.feature_updates import VoterLevels

NewId = Callable[[], UUID]


class UpdateRules(TypedDict):
    """The keyword arguments of decisions that update partitions."""

    availability: BrokerAvailability
    unclean: UncleanRule
    index: PartitionIndex


class PlacementRules(TypedDict):
    """The keyword arguments of decisions that place replicas."""

    config: NodeConfig
    random: Random
    index: PartitionIndex
    availability: BrokerAvailability


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The controller's state that decisions need. `wall_clock_ms` is its clock, for delegation tokens.

    `has_valid_session(broker_id)`: whether the broker's last heartbeat is younger than its session timeout.
    """

    config: NodeConfig
    random: Random
    availability: BrokerAvailability
    unclean: UncleanRule
    index: PartitionIndex
    wall_clock_ms: Callable[[], int]
    has_valid_session: Callable[[int], bool]
    features: tuple[SupportedFeature, ...]
    levels_of_voters: Callable[[], VoterLevels]
    min_insync: MinInsync | None

    @property
    def rules(self) -> UpdateRules:
        return {"availability": self.availability, "unclean": self.unclean, "index": self.index}

    @property
    def placement(self) -> PlacementRules:
        return {
            "config": self.config,
            "random": self.random,
            "index": self.index,
            "availability": self.availability,
        }


def unchanged(request: Request, new_id: NewId) -> Request:
    """Return a request that may be repeated as it is."""
    return request


def same_reply(request: Request, reply: Reply, before: MetadataImage) -> Reply:
    """Return the reply to a request that has the same outcome each time."""
    return reply


@dataclass(frozen=True, slots=True)
class ControllerRequest:
    """One request to the controller.

    `decide`: from (image, request, circumstances). `cause`: of the batch, a key of CAUSE_SENTENCES or a function of the
    request; None if the batch needs no cause. `about_another`: its broker id is its subject; otherwise it is its
    sender, which the controller checks. `since`: the level of raftlog.metadata.version which it needs.

    A broker repeats a request after it lost a connection or a controller. The first attempt may have been carried out,
    and its reply lost. `before_first` completes a request before it is sent, so that it may be sent again: a repeated
    creation finds its own topic by its id. `after_retry` turns the reply to a retry into the reply of the first
    attempt. A repeated deletion, for instance, finds nothing, which is a success if the sender saw the object before.
    All other requests are fenced by epochs, or harmless to repeat.
    """

    decide: Callable[[MetadataImage, Any, Circumstances], Decision]
    cause: str | Callable[[Any], Cause] | None
    about_another: bool = False
    since: int = 0
    before_first: Callable[[Any, NewId], Any] = unchanged
    after_retry: Callable[[Any, Any, MetadataImage], Reply] = same_reply
