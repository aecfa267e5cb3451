"""Members of a group as processes, so that a kill is a kill: they report their records and partitions themselves.

A member is any program that prints member.py's lines, in any language.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from raftlog.testing.progress import Stalled
from tests.kit.waits import PATIENCE_S, ended, until

MAX_COMPLAINTS = 5


class MemberKind(NamedTuple):
    """A library and how its members assign: the words that follow bootstrap, topic and group. `command` starts it."""

    name: str
    command: tuple[str, ...]
    assignor: str = "roundrobin"

    def __str__(self) -> str:
        return f"{self.name}-{self.assignor}"


def python_kind(library: str, assignor: str = "roundrobin") -> MemberKind:
    program = Path(__file__).with_name("member.py")
    return MemberKind(library, (sys.executable, str(program), library), assignor)


class MemberProcess:
    """A consumer. `values` are the values of its records, `partitions` its current partitions, `revoked` in order."""

    def __init__(
        self, kind: MemberKind, bootstrap: str, topic: str, group: str, *, instance_id: str | None = None
    ) -> None:
        self.kind = kind
        self.values: list[bytes] = []
        self.partitions: frozenset[int] = frozenset()
        self.revoked: list[int] = []
        self.fenced: list[bytes] = []
        """Each time that it was fenced: only a stalled member may be."""
        self.stood_still = False
        self.complaints: deque[bytes] = deque(maxlen=MAX_COMPLAINTS)
        """The last lines that are none of the above, of standard error too."""
        self._process = subprocess.Popen(
            [*kind.command, bootstrap, topic, group, kind.assignor, *([instance_id] if instance_id else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        lines = b"; ".join(self.complaints).decode(errors="replace")
        code = self._process.poll()
        ended = "" if code is None else f", ended with {code}"
        return f"<{self.kind} has {sorted(self.partitions)}, read {len(self.values)}{ended} {lines}>"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(b" ")
            if word == b"read":
                self.values.append(rest)
            elif word == b"has":
                self.partitions = frozenset(map(int, rest.split()))
            elif word == b"gave":
                gave = [int(each) for each in rest.split()]
                self.revoked += gave
                self.partitions -= set(gave)
            else:
                if word == b"fenced":
                    self.fenced.append(rest)
                self.complaints.append(line.strip())

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, other than well, or was put out of its group without having stood still."""
        return (self._process.poll() or 0) > 0 or bool(self.fenced and not self.stood_still)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def pause(self) -> None:
        """Let it stand still, with its connections open."""
        self.stood_still = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Let it leave the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            ended(self._process)
        except Stalled:
            self.kill()
        self._reader.join(PATIENCE_S)


class GroupMembers:
    """The members of one group, including dead members."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, partitions: int) -> None:
        self.group = group
        self.members: list[MemberProcess] = []
        self.everybody: list[MemberProcess] = []
        self._where = (bootstrap, topic, group)
        self._partitions = partitions

    def __repr__(self) -> str:
        return f"{self.group}: {self.everybody}"

    def join(self, *kinds: MemberKind, instance_id: str | None = None) -> None:
        """Start members; with an instance id a static member (KIP-345)."""
        for kind in kinds:
            self.members.append(MemberProcess(kind, *self._where, instance_id=instance_id))
            self.everybody.append(self.members[-1])

    def kill(self, index: int) -> MemberProcess:
        """Kill -9 a member, which then is none; returns it."""
        self.members[index].kill()
        return self.members.pop(index)

    def leave(self, index: int) -> MemberProcess:
        """Let a member leave; returns it."""
        self.members[index].close()
        return self.members.pop(index)

    def end(self) -> None:
        for each in self.everybody:
            each.kill()

    @property
    def values(self) -> set[bytes]:
        """The values that anybody read."""
        return {value for each in self.everybody for value in each.values}

    def readings(self) -> list[bytes]:
        """The values that were read, as often as they were."""
        return [value for each in self.everybody for value in each.values]

    @property
    def shares(self) -> list[int]:
        """How many partitions each has, fewest first."""
        return sorted(len(each.partitions) for each in self.members)

    @property
    def is_settled(self) -> bool:
        """Whether each partition has one owner."""
        owned = sorted(index for each in self.members for index in each.partitions)
        return owned == list(range(self._partitions))

    def wait_shares(self, shares: Sequence[int]) -> None:
        """Wait until each partition has one owner and the members have so many each, fewest first."""
        self._wait(lambda: self.is_settled and self.shares == sorted(shares), f"shares {shares}")

    def wait_read(self, values: Iterable[bytes]) -> None:
        wanted = set(values)
        self._wait(lambda: self.values >= wanted, f"{len(wanted)} records are read")

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            assert not any(each.has_failed for each in self.everybody), f"a member failed: {self}"
            return holds()

        until(look, what, seen=lambda: self)


@contextmanager
def group_members(
    bootstrap: str, topic: str, group: str, *kinds: MemberKind, partitions: int
) -> Iterator[GroupMembers]:
    """A group whose members are gone at the end."""
    found = GroupMembers(bootstrap, topic, group, partitions=partitions)
    try:
        found.join(*kinds)
        yield found
    finally:
        found.end()
