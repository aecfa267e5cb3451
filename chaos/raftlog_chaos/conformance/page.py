"""Writes the page about what differs from Kafka out of the list of differences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from raftlog_chaos.conformance.differences import Kind, Known

COLUMNS: Final = 120
_PARTS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    (
        "Not built",
        "not built",
        "What is not built is not advertised to clients. raftlog does not take over a folder with Kafka's data: such "
        "partitions are set aside and renamed. A produced batch must keep to its header's rules: one batch for a "
        "partition, magic 2, as many records as the offsets say, a known codec, no control bit, the right CRC-32C. "
        "Single records are walked only where their contents matter: [which batches](batches.md). Malformed records "
        "in other batches are stored, where Kafka refuses them. They cost [the readers of their own "
        "batch](batches.md#readers-of-malformed-records) something, and no other reader.",
        "",
    ),
    (
        "Different on purpose",
        "by design",
        "",
        "[Decisions](decisions/index.md) has the reasons, and the smaller differences.",
    ),
    (
        "Better than Kafka 4.3",
        "kafka's own fault",
        "Here Kafka 4.3 has a fault that raftlog does not copy. Each line says first what raftlog does.",
        "",
    ),
)
"""Title, kind, and what stands before and after the list."""
_SAME: Final = (
    "Records on disk are in Kafka's format, and so are `__consumer_offsets` and `__transaction_state`. Settings have "
    "Kafka's names, and a KRaft `server.properties` works. Error codes, epochs and features (`metadata.version`, "
    "`group.version`, `transaction.version`) are Kafka's, so Kafka's own scripts work."
)
_HOW_KNOWN: Final = (
    "Short programs ask Apache Kafka 4.3 and raftlog the same questions, and their answers are compared (`make "
    "kafka-diff`). This page is made of the list of what may differ; any other difference is a failed test."
)


def page(known: Mapping[str, Sequence[Known]]) -> str:
    """Return the page as Markdown. `known`: by heading."""
    return "\n".join(_lines(known)) + "\n"


def _lines(known: Mapping[str, Sequence[Known]]) -> Iterator[str]:
    yield from ("# What differs from Kafka", "", *_wrapped(_HOW_KNOWN), "")
    for title, kind, before, after in _PARTS:
        yield from (f"## {title}", "")
        yield from (*_wrapped(before), "") if before else ()
        seen: set[str] = set()
        for heading, some in known.items():
            sentences = dict.fromkeys(each.why for each in some if each.kind == kind and each.why not in seen)
            if not sentences:
                continue
            seen |= sentences.keys()
            yield from (f"### {heading}", "")
            for each in sentences:
                yield from _wrapped(each, "- ")
            yield ""
        yield from (*_wrapped(after), "") if after else ()
    yield from ("## The same, where you may not expect it", "", *_wrapped(_SAME))


def _wrapped(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )
