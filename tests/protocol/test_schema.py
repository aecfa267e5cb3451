"""Message schemas: found when first asked for, by whichever thread."""

from __future__ import annotations

import subprocess
import sys

IMPORTING = """
import sys, threading
from raftlog.protocol.apis import APIS
from raftlog.protocol.schema import message_type

sys.setswitchinterval(1e-6)
messages = [(key, each) for key in (0, 1, 2, 3) for each in range(APIS[key].min_version, APIS[key].max_version + 1)]
together = threading.Barrier(3)
failures = []

def ask(direction):
    together.wait()
    for key, version in messages:
        try:
            message_type(key, version, direction)
        except RuntimeError as error:
            failures.append(repr(error))

threads = [threading.Thread(target=ask, args=(each,)) for each in ("request", "response", "request")]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit("\\n".join(failures) or None)
"""


def test_threads_that_ask_for_messages_at_the_same_time_do_not_deadlock() -> None:
    """Handlers are warmed up on a thread while clients ask: Python 3.11's import system gives up on crossed locks."""
    outcome = subprocess.run(
        [sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
