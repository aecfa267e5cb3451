"""Known differences between Apache Kafka 4.3 and raftlog; the package `known` has them all.

A difference that a history shows and no entry explains is a failure, and so is an entry that no history shows any more.
The page `docs/pages/explanation/kafka.md` is made of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from raftlog_chaos.conformance.compare import Difference

Kind = Literal["by design", "kafka's own fault", "not built", "open"]
"""`open` is for a fault of raftlog's that is not mended yet: `--strict` fails for it, and the page leaves it out."""


ERROR: Final = "error_code"
DRAWN: Final = "generated/"
"""The subject of histories that are drawn by chance."""


class Known(NamedTuple):
    """A difference and its reason, which is a sentence of the page. Patterns are file name patterns: `*` matches
    anything.

    `histories` are labels with spaces between; empty: no history can show it. `step` is the request, `path` leads to
    the value, `kafka` and `raftlog` are the two values as text. With `ends`, later differences of such a history follow
    from it, and are not judged. `errors` names the pairs of errors, KAFKAS=RAFTLOGS, that an entry with a wide path
    explains too.
    """

    kind: Kind
    why: str
    histories: str = ""
    path: str = "*"
    step: str = "*"
    kafka: str = "*"
    raftlog: str = "*"
    ends: bool = False
    errors: str = ""

    def is_about(self, labels: Iterable[str]) -> bool:
        """Return whether any of these histories should show the difference."""
        return any(fnmatchcase(label, each) for label in labels for each in self.histories.split())

    @property
    def is_drawn(self) -> bool:
        """Whether only randomly drawn histories show it, and perhaps none of this run's."""
        return all(each.startswith(DRAWN) for each in self.histories.split())

    def explains(self, difference: Difference) -> bool:
        """Return whether this entry is about a difference. It explains another error only where it names errors."""
        kafka, raftlog = str(difference.kafka), str(difference.other)
        if difference.path.endswith(ERROR) and not self._names(kafka, raftlog):
            return False
        return (
            self.is_about([difference.history])
            and fnmatchcase(difference.path, self.path)
            and fnmatchcase(difference.asked, self.step)
            and fnmatchcase(kafka, self.kafka)
            and fnmatchcase(raftlog, self.raftlog)
        )

    def _names(self, kafka: str, raftlog: str) -> bool:
        """Whether this entry speaks of these errors: by `errors`, or as its path or its values say."""
        is_narrow = self.path.endswith(ERROR) or (self.kafka, self.raftlog) != ("*", "*")
        return f"{kafka}={raftlog}" in self.errors.split() if self.errors else is_narrow


class Judged(NamedTuple):
    """The differences of one history that no entry explains, and the entries that explain others."""

    unknown: list[Difference]
    used: list[Known]


def judge(found: Iterable[Difference], known: Sequence[Known]) -> Judged:
    """Split the differences of one history, in their order, into known and unknown differences."""
    unknown: list[Difference] = []
    used: list[Known] = []
    for each in found:
        entry = next((entry for entry in known if entry.explains(each)), None)
        if entry is None:
            unknown.append(each)
            continue
        used.append(entry)
        if entry.ends:
            break
    return Judged(unknown, used)
