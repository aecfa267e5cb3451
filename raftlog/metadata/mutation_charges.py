"""The request of a broker to charge a client for partitions that it creates or deletes, and the reply (KIP-599)."""

from __future__ import annotations

import msgspec


class ChargeMutations(msgspec.Struct, frozen=True, tag="charge_mutations"):
    """Charge partitions that a client is about to create or delete (KIP-599). `sizes`: of each part of its request."""

    user: str
    client_id: str
    sizes: tuple[int, ...]
    strict: bool


class MutationsCharged(msgspec.Struct, frozen=True, tag="mutations_charged"):
    """Which parts may go on, and the client's throttle time."""

    allowed: tuple[bool, ...]
    throttle_ms: int = 0
