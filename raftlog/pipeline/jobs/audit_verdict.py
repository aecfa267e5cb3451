"""The findings of an audit, and their texts. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition from `first` to `end` (exclusive), and its faults, in records.

    `unnumbered` have no number to order by. `corrupt` describes a damaged batch; then there are no other findings.
    """

    topic: str
    partition: int
    first: int
    end: int
    records: int = 0
    missing: int = 0
    repeated: int = 0
    disordered: int = 0
    unnumbered: int = 0
    corrupt: str = ""

    def as_text(self) -> str:
        tp = f"{self.topic}-{self.partition}"
        if self.corrupt:
            return f"{tp}  [{self.first}, {self.end}) is corrupt: {self.corrupt}"
        return (
            f"{tp}  {self.records:,} records in [{self.first}, {self.end}), "
            f"{self.missing} missing, {self.repeated} repeated, {self.disordered} out of order"
        )


@dataclass(frozen=True, slots=True)
class Twice:
    """Records by identity: how many are duplicates, how many have no identity."""

    doubled: int = 0
    nameless: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict. `doubled`: duplicate records; `nameless`: records without an identity; `straying`: keys in several
    partitions of a topic. These three leave corrupt partitions out.
    """

    partitions: tuple[PartitionVerdict, ...]
    doubled: int
    nameless: int
    straying: int
    examples: tuple[str, ...]
    gaps_allowed: bool
    seconds: float
    job: str = "audit"

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def counts(self) -> dict[str, int]:
        """Return what was found, by name, `corrupt` in partitions; what is allowed is not found."""
        return {
            "missing": 0 if self.gaps_allowed else self._sum("missing"),
            "repeated": self._sum("repeated"),
            "disordered": self._sum("disordered"),
            "unnumbered": self._sum("unnumbered"),
            "doubled": self.doubled,
            "nameless": self.nameless,
            "straying": self.straying,
            "corrupt": sum(bool(each.corrupt) for each in self.partitions),
        }

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.partitions)

    @property
    def sound(self) -> bool:
        return not any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "records": self.records, "found": self.counts, "sound": self.sound}

    def as_text(self) -> str:
        lines = [each.as_text() for each in self.partitions]
        lines += [f"  {each}" for each in self.examples]
        found = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        verdict = "sound" if self.sound else f"WRONG: {found}"
        lines.append(f"audit: {self.records:,} records in {self.seconds:.1f} s: {verdict}")
        return "\n".join(lines)
