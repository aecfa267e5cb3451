"""Time limits of catalogs and stores, and the words while they do not answer.

The libraries wait for minutes without a word, or forever. A commit that timed out may still take effect later. It is
based on a version of the table, so after another commit it appends nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

CONNECT_S: Final = 10.0
"""The limit to connect to a catalog or a store."""
ANSWER_S: Final = 30.0
"""The limit of a request to it."""
SILENT_S: Final = 10.0
"""The time between two lines about what has not answered."""
STOP_S: Final = 25.0
"""The limit of the last commit after SIGTERM. Supervisors of containers kill a process after 30 s."""


@contextmanager
def watched(asked: Callable[[], str], say: Callable[[str], None]) -> Iterator[None]:
    """Say from time to time that what is `asked` is not done, until the block ends."""
    ended, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(SILENT_S):
            say(f"still waiting for {asked()}, after {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=watch, name="raftlog-patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
