"""The metadata image that this node has applied, and its listeners.

Ordering law: batches are applied in log order, each whole or not at all. Listeners get `(old, new)` once per loop
iteration at most, so a long replay is one change to them. It does not know how batches are decided or received.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.metadata.features import SUPPORTED_FEATURES, check_levels
from raftlog.metadata.history import History
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, SupportedFeature
from raftlog.metadata.metadata_records import decode_batch
from raftlog.metadata.record_replay import apply_batch
from raftlog.metadata.snapshot import decode_image, encode_image

Listener = Callable[[MetadataImage, MetadataImage], None]


class MetadataLoader:
    """The quorum's state machine: `image` is everything committed and applied here."""

    def __init__(
        self,
        defer: Callable[[Callable[[], None]], object],
        *,
        features: tuple[SupportedFeature, ...] = SUPPORTED_FEATURES,
    ) -> None:
        """`defer` runs a call in the next loop iteration (`loop.call_soon`); `features` are what the node supports."""
        self.features = features
        self.image: MetadataImage = EMPTY_IMAGE
        self.published_image: MetadataImage = EMPTY_IMAGE
        self.history = History()
        self.on_batch_written: Callable[[int], None] = lambda at_ms: None
        """Called with the wall time at which a controller wrote the batch that was just applied; 0: unknown."""
        self._defer = defer
        self._deferred = False
        self._listeners: list[Listener] = []
        self._immediate: list[Callable[[MetadataImage], None]] = []

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(old, new)` after changes, where `old` is the image of its last call."""
        self._listeners.append(listener)

    def subscribe_each(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call `listener(image)` for each applied batch, before all other listeners: the controller answers its callers
        from it.
        """
        self._immediate.append(listener)

    def apply(self, data: bytes) -> None:
        """Apply one committed batch. A batch whose fence does not match is skipped, on every node alike.

        Raise UnsupportedMetadata for records that only another release knows, as does `restore`.
        """
        batch = decode_batch(data)
        image = apply_batch(self.image, batch)
        if image is not None:
            self._check(image)
            self.on_batch_written(batch.at_ms)
            self.history.add_batch(self.image, image, batch)
            self._advance(image)

    def snapshot(self) -> Callable[[], bytes]:
        """Return a call that encodes the image of this moment (it may run in a thread: images are values)."""
        image = self.image
        return lambda: encode_image(image)

    def restore(self, data: bytes) -> None:
        """Replace the image by a snapshot's."""
        image = decode_image(data)
        self._check(image)
        self.history.reset_to(image)
        self._advance(image)

    def _check(self, image: MetadataImage) -> None:
        if image.features is not self.image.features:
            check_levels(self.features, image)

    def _advance(self, image: MetadataImage) -> None:
        self.image = image
        if not self._deferred:
            self._deferred = True
            self._defer(self._publish)
        for listener in self._immediate:
            listener(image)

    def _publish(self) -> None:
        self._deferred = False
        old, self.published_image = self.published_image, self.image
        for listener in self._listeners:
            listener(old, self.published_image)
