"""What a fault is: something that can be injected into a place and healed again, with the same name everywhere."""

from __future__ import annotations

import random
from typing import ClassVar, Protocol

from raftlog.proof.place import Ability, Place


class Fault(Protocol):
    """One injection and its healing. Make a new one for each."""

    name: ClassVar[str]
    """As in Python, the command line, HTTP and suites: words joined by hyphens."""
    needs: ClassVar[frozenset[Ability]]
    destructive: ClassVar[bool] = False
    """Destroys what a node was trusted to keep: one node at a time, only while all others have everything."""

    async def inject(self, place: Place, chance: random.Random) -> str:
        """Do it, to whom chance picks, and say in a few words to whom; "" if there was nobody to do it to."""

    async def heal(self, place: Place) -> None:
        """Undo it. What it did to others in the meantime stays; healing twice is healing once."""
