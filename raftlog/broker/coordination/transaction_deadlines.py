"""The timeouts of brokers that wait for other brokers to commit parts of a transaction, for both ends.

Law: the server responds with what it has well before the client times out. Otherwise one partition that cannot commit
delays all others in its request, and the retry includes that partition again.
"""

from __future__ import annotations

from typing import Final

MARKERS_COMMITTED_S: Final = 1.0
"""A leader responds for the markers committed by then. The coordinator retries the others."""

MARKERS_ANSWERED_S: Final = 3.0
"""A leader silent for this long may have lost the leadership, so the leader is looked up again."""

ADDED_S: Final = 1.0
"""A coordinator responds for the transactions whose records are committed by then."""

VERIFIED_S: Final = 5.0
"""The timeout for a coordinator to verify partitions of its transactions."""

MARGIN: Final = 2
"""A request may have to wait behind another request on its connection, for as long as that request may take."""

assert MARKERS_COMMITTED_S * MARGIN < MARKERS_ANSWERED_S
assert ADDED_S * MARGIN < VERIFIED_S
