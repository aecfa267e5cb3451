"""The traffic of one topic's partitions here: plain numbers that only grow while the process lives."""

from __future__ import annotations


class Traffic:
    """Shared by the partitions of a topic on this broker. A request counts once for each partition that it names."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "follower_fetches",
        "messages_in",
        "messages_out",
        "produces",
        "replica_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records that producers appended; a retry counts once."""
        self.bytes_in = 0
        self.messages_out = 0
        """Records sent to consumers, by offsets: compacted records and transaction markers count too."""
        self.bytes_out = 0
        """To consumers; `replica_bytes_out` is to followers."""
        self.replica_bytes_out = 0
        self.produces = 0
        self.failed_produces = 0
        self.fetches = 0
        self.failed_fetches = 0
        self.follower_fetches = 0
        """Fetches of consumers that got records here while this broker followed (KIP-392)."""
