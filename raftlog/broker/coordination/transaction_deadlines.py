"""How long brokers wait for what transactions have to have committed at others: one law for both ends.

Law: whoever serves answers what it has well before whoever asks hangs up. Otherwise one partition that cannot commit
takes the answers of all others in its request with it, and they are asked about again, that partition among them.
"""

from __future__ import annotations

from typing import Final

MARKERS_COMMITTED_S: Final = 1.0
"""A leader answers for the markers that are committed by then; the coordinator asks again about the others."""

MARKERS_ANSWERED_S: Final = 3.0
"""A leader that says nothing for so long may be leader no more: where it is is looked up again."""

ADDED_S: Final = 1.0
"""A coordinator answers for the transactions whose records are committed by then."""

VERIFIED_S: Final = 5.0
"""How long a coordinator may take to say what is part of its transactions."""

MARGIN: Final = 2
"""A request may have to wait behind another one on its connection, for as long as that may take."""

assert MARKERS_COMMITTED_S * MARGIN < MARKERS_ANSWERED_S
assert ADDED_S * MARGIN < VERIFIED_S
