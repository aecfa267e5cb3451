"""One seed is one run, whatever hashes an interpreter gives its strings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from raftlog_chaos.scenarios import endurance
from raftlog_chaos.simulator import simulate
from tests.chaos.test_loop import busy
from tests.chaos.test_sim_quorum import election


def digests() -> list[str]:
    """Return the digests of a run of the loop, of a quorum and of a storm."""
    return [simulate(busy, seed=1).digest, simulate(election, seed=1).digest, endurance.run(3, 0.5).digest]


@pytest.mark.slow
def test_a_run_does_not_depend_on_hash_randomisation() -> None:
    """Equal digests across PYTHONHASHSEED, here and in a fresh interpreter."""
    program = "from tests.chaos.test_hash_seeds import digests; print(*digests())"
    hash_seed = "0" if os.environ.get("PYTHONHASHSEED") != "0" else "4242"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].split() == digests()
