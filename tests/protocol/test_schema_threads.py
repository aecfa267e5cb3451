"""Claims about importing kio's modules from two threads: the warm-up's and the loop's."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit.waits import run

ROOT = Path(__file__).resolve().parents[2]
RACE = """
import sys, threading
sys.setswitchinterval(1e-6)
from raftlog.protocol.apis import APIS
from raftlog.protocol.schema import module_of

failures = []
start = threading.Barrier(2)

def load(directions):
    start.wait()
    for key, api in sorted(APIS.items()):
        for version in range(api.max_version, api.max_version - 2, -1):
            if not api.handles(version):
                continue
            for direction in directions:
                try:
                    module_of(key, version, direction)
                except Exception as error:
                    failures.append(repr(error))

threads = [threading.Thread(target=load, args=(each,)) for each in (("request", "response"), ("response", "request"))]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit("\\n".join(failures) or 0)
"""


def test_two_threads_may_import_the_same_messages_at_once() -> None:
    """CPython refuses an import as a deadlock when one thread imports a package and another its module first."""
    for _ in range(2):
        ended = run([sys.executable, "-c", RACE], text=True, cwd=ROOT)
        assert ended.returncode == 0, ended.stderr[:2000]
