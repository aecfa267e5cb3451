"""Claims about the compose cluster as a place that need no engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.testbeds import compose


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="needs nsenter")
def test_rule_that_a_living_container_does_not_take_is_no_cut(tmp_path: Path) -> None:
    """A fault that was not injected must not pass for injected; a container that has ended needs no rule."""
    testbed = compose.ComposeTestbed(tmp_path, ("docker", "compose"))
    alive = compose._Container("running", os.getpid(), "", 0, "healthy")
    with pytest.raises(Unavailable):
        asyncio.run(testbed._iptables(alive, "--no-such-option"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    asyncio.run(testbed._iptables(alive._replace(pid=ended.pid), "--no-such-option"))
