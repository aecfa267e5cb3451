"""Claims about the testbed of network namespaces: a whole cluster in it, and no leftovers in the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.progress import wait_until_async
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.testbeds.find import find_testbeds
from raftlog_chaos.testbeds.testbed import Testbed

pytestmark = [pytest.mark.clients, pytest.mark.slow]


async def until_ready(testbed: Testbed, nodes: set[int]) -> None:
    """Wait until these nodes are ready and no others."""

    async def ready() -> bool:
        return (await testbed.view()).ready == nodes

    await wait_until_async(ready, f"nodes {nodes} are ready")


async def test_a_node_that_is_cut_off_is_fenced_and_comes_back_when_healed(tmp_path: Path) -> None:
    """A whole cluster on it: clients reach all nodes meanwhile, and in the end this machine is as it was."""
    mine = os.readlink("/proc/thread-self/ns/net")
    before = subprocess.run(["ip", "-br", "link"], capture_output=True, check=False).stdout
    place_file = find_testbeds()["namespaces"]
    try:
        testbed: Any = await place_file.open(tmp_path, nodes=3, settings={}, seed=1)
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        await until_ready(testbed, {1, 2, 3})
        for other in (1, 2):
            await testbed.cut(3, other)
            await testbed.cut(other, 3)
        await until_ready(testbed, {1, 2})
        assert testbed.cluster.view(3), "clients still reach it"
        await testbed.heal_links()
        await until_ready(testbed, {1, 2, 3})
    finally:
        await testbed.close()
    assert os.readlink("/proc/thread-self/ns/net") == mine
    assert await asyncio.to_thread(os.readlink, "/proc/thread-self/ns/net") == mine
    assert subprocess.run(["ip", "-br", "link"], capture_output=True, check=False).stdout == before
    assert not testbed.cluster.running_ids()
