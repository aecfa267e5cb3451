"""The page of a card: sums, differences with their reasons, and each history as a square that links to its details.

One self-contained HTML file in the style of a chaos run's page: it fetches and executes no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from raftlog_chaos.conformance.card.grouping import reasons_of, sorts_of
from raftlog_chaos.conformance.card.result import OUTCOMES, Card, Outcome, Result, Step, summed
from raftlog_chaos.runs.report import STYLE as COMMON_STYLE

STYLE: Final = Path(__file__).with_name("page.css")
CLASSES: Final[dict[Outcome, str]] = {
    "kept": "kept",
    "differs, on purpose": "purpose",
    "differs": "differs",
    "not supported": "unsupported",
    "not run": "notrun",
}
MEANINGS: Final[dict[Outcome, str]] = {
    "kept": "all answers are those of Kafka",
    "differs, on purpose": "the difference is listed in the documentation of raftlog, with its reason",
    "differs": "at least one answer is another",
    "not supported": "the broker does not serve a request, or not in the version that is needed",
    "not run": "for a reason given below",
}
MAX_SORTS: Final = 40
"""Rows of the table of differences."""
EXAMPLES: Final = 3
FOOTER: Final = (
    "A history is a short program over a broker; its claim says what Kafka does. Ids, times and addresses are shown as "
    "labels. `(default)` is a field with the default of Kafka's schema. A history that differs once is shown with all "
    "that follows from it."
)


def render(card: Card) -> str:
    """Return the whole HTML document."""
    style = COMMON_STYLE.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(card.broker)} beside Kafka {escape(card.kafka)}</title>",
        f"<style>{style}</style></head><body><main>",
        *_head(card),
        *_tiles(card),
        *_subjects(card),
        *_sorts(card),
        *_reasons(card),
        *(line for subject, results in card.by_subject() for line in _subject(card, subject, results)),
        f"<footer>{escape(FOOTER)}</footer>",
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _head(card: Card) -> Iterator[str]:
    counts = card.counts()
    differing, missing = counts["differs"], counts["not run"] + counts["not supported"]
    if card.gone:
        kind, said = "failed", "ended early"
    elif differing:
        kind, said = "failed", f"{differing:,} differ"
    elif missing:
        kind, said = "unrun", f"{counts['kept']:,} kept"
    else:
        kind, said = "passed", "all kept" if not counts["differs, on purpose"] else "kept"
    began = card.began.replace("T", " ").removesuffix("+00:00") + " UTC"
    where = f"{card.bootstrap} · {began} · {card.seconds:.0f} s · {card.tool}"
    beside = f"beside the answers of Apache Kafka {card.kafka}, recorded {card.recorded}"
    yield f'<header><div class="stamp {kind}">{escape(said)}</div>'
    yield f"<div><h1>{escape(card.broker)} <small>{escape(beside)}</small></h1><p>{escape(where)}</p></div></header>"
    lines = [*card.notes, *(f"Left behind: {each}." for each in card.left)]
    if card.own:
        lines.append(f"Histories that need nodes of their own are no part of a card ({card.own:,}).")
    if lines:
        yield '<ul class="notes">'
        yield from (f"<li>{escape(line)}</li>" for line in lines)
        yield "</ul>"


def _tiles(card: Card) -> Iterator[str]:
    counts = card.counts()
    ran = len(card.histories) - counts["not run"]
    share = f"{100 * counts['kept'] / ran:.0f} <small>%</small>" if ran else "-"
    yield f"<dl><div><dt>kept, of those that ran</dt><dd>{share}</dd></div>"
    for outcome in OUTCOMES:
        alarm = ' class="alarm"' if outcome == "differs" and counts[outcome] else ""
        title = escape(MEANINGS[outcome])
        yield f'<div title="{title}"><dt><i class="{CLASSES[outcome]}"></i>{escape(outcome)}</dt>'
        yield f"<dd{alarm}>{counts[outcome]:,}</dd></div>"
    yield "</dl>"


def _subjects(card: Card) -> Iterator[str]:
    heads = "".join(f"<th>{escape(each)}</th>" for each in OUTCOMES)
    yield f'<div class="card"><table><tr><th>subject</th><th class="left"></th><th>histories</th>{heads}</tr>'
    for subject, results in card.by_subject():
        counts = summed(results)
        cells = "".join(f"<td>{counts[each] or ''}</td>" for each in OUTCOMES)
        yield f'<tr><td><a href="#{escape(subject)}">{escape(subject)}</a></td>'
        yield f'<td class="wide">{_bar(results)}</td><td>{len(results)}</td>{cells}</tr>'
    yield "</table></div>"


def _bar(results: Sequence[Result]) -> str:
    counts = summed(results)
    pieces = [
        f'<span class="{CLASSES[each]}" style="flex-grow:{counts[each]}"></span>'
        for each in OUTCOMES
        if counts[each]
    ]
    return f'<span class="shares">{"".join(pieces)}</span>'


def _sorts(card: Card) -> Iterator[str]:
    sorts = sorts_of(card.histories)
    if not sorts:
        return
    shown = (
        f"the {MAX_SORTS} most frequent of {len(sorts)}" if len(sorts) > MAX_SORTS else "most frequent first"
    )
    yield f"<h2>What differs <small>by the first difference of each history; {shown}</small></h2>"
    yield '<div class="card"><table class="sorts"><tr><th>histories</th><th class="left">asked</th>'
    yield f'<th class="left">Kafka {escape(card.kafka)}</th><th class="left">{escape(card.broker)}</th>'
    yield '<th class="left">such as</th></tr>'
    for sort, results in sorts[:MAX_SORTS]:
        examples = ", ".join(_link(each) for each in results[:EXAMPLES])
        place = f"{escape(sort.api)} <small>{escape(sort.field)}</small>"
        yield f'<tr><td>{len(results)}</td><td class="left" title="{escape(sort.path)}">{place}</td>'
        yield f'<td class="left"><code>{escape(sort.kafka)}</code></td>'
        yield f'<td class="left"><code>{escape(sort.broker)}</code></td><td class="left such">{examples}</td></tr>'
    yield "</table></div>"


def _reasons(card: Card) -> Iterator[str]:
    for outcome in OUTCOMES[1:]:
        reasons = reasons_of(card.histories, outcome)
        if outcome == "differs" or not reasons:
            continue
        yield f"<h2>{escape(outcome.capitalize())}</h2>"
        yield '<div class="card"><table class="reasons">'
        for why, results in reasons:
            examples = ", ".join(_link(each) for each in results[:EXAMPLES])
            yield f'<tr><td>{len(results)}</td><td class="left">{escape(why)}</td>'
            yield f'<td class="left such">{examples}</td></tr>'
        yield "</table></div>"


def _link(result: Result) -> str:
    return (
        f'<a href="#{_anchor(result)}">{escape(result.history)}</a>'
        if result.steps
        else escape(result.history)
    )


def _anchor(result: Result) -> str:
    return escape(result.history.replace(" ", "_"))


# --- the histories of one subject


def _subject(card: Card, subject: str, results: Sequence[Result]) -> Iterator[str]:
    yield f'<h2 id="{escape(subject)}">{escape(subject)} <small>{len(results)} histories</small></h2>'
    yield '<div class="card programs">'
    for program, found in groupby(results, lambda each: each.program):
        rows = list(found)
        title = escape(program.replace("-", " "))
        yield f'<section><h3>{title}</h3><p>{escape(rows[0].claim)}</p><p class="cells">'
        yield "".join(map(_cell, rows))
        yield "</p>"
        for each in rows:
            if each.steps:
                yield from _story(card, each)
        yield "</section>"
    yield "</div>"


def _cell(result: Result) -> str:
    older = f" (asked: {', '.join(result.older)})" if result.older else ""
    why = f": {'; '.join(result.why)}" if result.why else ""
    title = escape(f"{result.row or result.program}: {result.outcome}{why}{older}")
    kind = CLASSES[result.outcome]
    if result.steps:
        return f'<a class="cell {kind}" href="#{_anchor(result)}" title="{title}"></a>'
    return f'<b class="cell {kind}" title="{title}"></b>'


def _story(card: Card, result: Result) -> Iterator[str]:
    yield f'<details><summary><i class="{CLASSES[result.outcome]}"></i>{escape(result.row or result.program)}'
    yield f" <small>{escape(result.outcome)}</small></summary>"
    yield f'<div id="{_anchor(result)}" class="story">'
    yield from (f"<p>{escape(each)}</p>" for each in result.why)
    yield "<ol>"
    for step in result.steps:
        yield from _step(card, step)
    yield "</ol></div></details>"


def _step(card: Card, step: Step) -> Iterator[str]:
    yield f"<li><strong>{escape(step.asked)}</strong> <code>{escape(step.fields)}</code>"
    if step.differing:
        yield f'<table class="sides"><tr><th></th><th class="left">Kafka {escape(card.kafka)}</th>'
        yield f'<th class="left">{escape(card.broker)}</th></tr>'
        for each in step.differing:
            yield f'<tr><td>{escape(each.path)}</td><td class="left"><code>{escape(each.kafka)}</code></td>'
            yield f'<td class="left"><code class="theirs">{escape(each.broker)}</code></td></tr>'
        yield "</table>"
    elif step.answer:
        yield f"<br><small>both</small> <code>{escape(step.answer)}</code>"
    yield "</li>"
