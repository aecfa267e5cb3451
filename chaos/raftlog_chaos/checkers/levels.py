"""Judges a cluster of two releases by what each node received: metadata, and requests to its controller.

It does not ask the guards under test, so it repeats which feature comes with which level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from raftlog.controller.requests import ROWS
from raftlog.metadata.controller_api import decode_request
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION, finalized_level, unsupported_reason
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, SupportedFeature
from raftlog.node import Node

PARTS_SINCE: Final = {1: ("acls", "scram", "tokens", "quotas"), 2: ("voters",)}
"""The parts of an image that a release without a level lacks."""

Features = tuple[SupportedFeature, ...]


class LevelBook:
    """Records the levels of the cluster, and blames a node that sent another node something too early."""

    def __init__(self, blame: Callable[[str], object], installed: Callable[[], Iterable[Features]]) -> None:
        """`installed`: the levels that each node's installed release supports, whether it runs or not."""
        self._blame = blame
        self._installed = installed
        self._newest = EMPTY_IMAGE
        self.controllers: set[bool] = set()
        """Whether active controllers were of the newer release."""
        self.raises = 0

    def began(self, node_id: int, node: Node) -> None:
        """Watch a new life of a node. It never raises."""
        seen = EMPTY_IMAGE

        def take(image: MetadataImage) -> None:
            nonlocal seen
            self._judge(node_id, node.metadata.features, seen, image)
            seen = image

        node.metadata.subscribe_each(take)
        quorum = node.control.quorum
        assert quorum is not None
        handle = quorum.on_request

        def look_and_handle(payload: bytes, peer: int) -> object:
            self._look(node_id, node, payload)
            return handle(payload, peer)

        quorum.on_request = look_and_handle  # type: ignore[assignment]

    def _judge(self, node_id: int, features: Features, old: MetadataImage, image: MetadataImage) -> None:
        level, before = (finalized_level(each, RAFTLOG_METADATA_VERSION) for each in (image, old))
        if level < before:
            self._blame(f"node {node_id}: the level of the metadata fell from {before} to {level}")
        later = [part for since, parts in PARTS_SINCE.items() if level < since for part in parts]
        if early := [each for each in later if getattr(image, each)]:
            self._blame(f"node {node_id} has {', '.join(early)} at level {level} of the metadata")
        reason = unsupported_reason(features, RAFTLOG_METADATA_VERSION, level) if level else None
        if reason:
            self._blame(f"node {node_id} has metadata of level {level}, but {reason}")
        if image.offset > self._newest.offset:
            self._judge_change(self._newest, image)
            self._newest = image

    def _judge_change(self, old: MetadataImage, image: MetadataImage) -> None:
        """A level changes only to one that every node's release supports, and no other broker takes part."""
        for broker in image.brokers.values():
            for name, level in image.features.items():
                reason = None if broker.fenced else unsupported_reason(broker.features, name, level)
                if reason:
                    self._blame(
                        f"broker {broker.broker_id} takes part at level {level} of {name}, but {reason}"
                    )
        for name, level in image.features.items():
            if level == old.features.get(name):
                continue
            self.raises += level > old.features.get(name, 0)
            for features in self._installed():
                if reason := unsupported_reason(features, name, level):
                    self._blame(f"{name} became {level}, and a node {reason}")

    def _look(self, node_id: int, node: Node, payload: bytes) -> None:
        """An older controller cannot read newer requests, whatever their sender."""
        controller = node.control.controller
        assert controller is not None
        if controller.active:
            newer = unsupported_reason(node.metadata.features, RAFTLOG_METADATA_VERSION, 1) is None
            self.controllers.add(newer)
            try:
                request = decode_request(payload)
            except msgspec.DecodeError:
                return
            if not newer and ROWS[type(request)].since > 0:
                self._blame(f"controller {node_id} of the older release was sent {type(request).__name__}")
