"""Makes a node count calls of raftlog's functions: SIGUSR1 begins, SIGUSR2 ends it.

The count is written to a file of the folder that GROWTH_COUNTS names. Only the main thread, with its loop, is counted.
"""

import os
import signal
import sys

CALLS = [0]


def _called(frame, event, argument):  # type: ignore[no-untyped-def]
    if event == "call" and "raftlog/" in frame.f_code.co_filename:
        CALLS[0] += 1


def _begin(number, frame):  # type: ignore[no-untyped-def]
    CALLS[0] = 0
    sys.setprofile(_called)


def _end(number, frame):  # type: ignore[no-untyped-def]
    sys.setprofile(None)
    path = f"{os.environ['GROWTH_COUNTS']}/{os.getpid()}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(str(CALLS[0]))
    os.rename(f"{path}.new", path)


if "GROWTH_COUNTS" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
