"""What the cluster under test serves by now: a test of what is not built is told as skipped."""

from __future__ import annotations

from typing import Any, Final

import pytest

from raftlog.protocol.apis import ApiKey
from tests.clients.members import Kind

HAS_KIP_848: Final = "CONSUMER_GROUP_HEARTBEAT" in ApiKey.__members__
HAS_TRANSACTIONS: Final = {"END_TXN", "TXN_OFFSET_COMMIT"} <= ApiKey.__members__.keys()

needs_kip_848 = pytest.mark.skipif(not HAS_KIP_848, reason="groups of KIP-848 are not built")
needs_transactions = pytest.mark.skipif(not HAS_TRANSACTIONS, reason="transactions are not built")


def case(*kinds: Kind) -> Any:
    """Libraries as a parameter, with the marks of what they need."""
    marks = [getattr(pytest.mark, kind.name) for kind in kinds[:1] if kind.name in ("java", "kafkajs")]
    if any(kind.assignor == "consumer" for kind in kinds):
        marks.append(needs_kip_848)
    return pytest.param(*kinds, marks=marks, id="-".join(map(str, kinds)))
