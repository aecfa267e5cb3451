"""The first batch of a cluster: what `raftlog format` left, at the level that the nodes support."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.controller.voters import decide_first_metadata
from raftlog.metadata.features import KRAFT_VERSION, RAFTLOG_METADATA_VERSION, VOTERS_CHANGE
from raftlog.metadata.image import SupportedFeature
from raftlog.metadata.metadata_records import ClusterNamed, FeatureChanged, VoterRegistered


@pytest.mark.parametrize("level", [VOTERS_CHANGE - 1, VOTERS_CHANGE])
def test_voters_can_change_from_the_first_batch_on(level: int) -> None:
    """Only at a level at which all nodes can read sets of voters."""
    asked = FeatureChanged(KRAFT_VERSION, 1)
    decision = decide_first_metadata(
        "ours",
        supported=[SupportedFeature(RAFTLOG_METADATA_VERSION, 0, level)],
        directories={1: UUID(int=1)},
        bootstrap=(asked,),
    )
    first = [
        ClusterNamed("ours"),
        FeatureChanged(RAFTLOG_METADATA_VERSION, level),
        VoterRegistered(1, UUID(int=1)),
    ]
    assert list(decision.records) == [*first, *([asked] if level >= VOTERS_CHANGE else [])]
