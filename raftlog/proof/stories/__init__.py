"""What the simulator tells anew with every seed: a cluster, its clients, its faults, and what must hold afterwards.

A story is `async def story(loop, seconds) -> Report`; it raises AssertionError when a promise was broken. A new one is
a file here and a line in `STORIES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from raftlog.proof.simulator.loop import SimLoop
from raftlog.proof.stories.endurance import endure
from raftlog.proof.stories.report import Report

Story = Callable[[SimLoop, float], Awaitable[Report]]

STORIES: Final[dict[str, Story]] = {
    "endurance": endure,
}
"""By the name that `raftlog sim --story` takes."""
