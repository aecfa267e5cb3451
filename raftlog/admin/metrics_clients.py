"""Metrics that clients pushed of themselves (KIP-714), as `kafka_client_*`; their amount, as
`raftlog_client_telemetry_*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raftlog.admin.exposition import Family, by_name, labelled, labels, single
from raftlog.admin.scrape import Scrape


def families(scrape: Scrape) -> Iterator[Family]:
    """Yield all of them; none of a node without the broker role."""
    facts = scrape.facts.client_metrics()
    if facts is None:
        return
    own = "raftlog_client_telemetry"
    yield single(f"{own}_clients", "gauge", "Clients that push metrics here, or asked to.", facts.clients)
    yield single(f"{own}_series", "gauge", "Series that clients pushed, shown here.", facts.series_count)
    yield single(f"{own}_pushes_total", "counter", "Pushes of clients that were taken.", facts.pushes)
    refused = by_name("error", facts.refused)
    yield labelled(f"{own}_refused_total", "counter", "Questions and pushes that were refused.", refused)
    text = "Points of pushes for which there was no room, or that are no gauges or sums."
    yield single(f"{own}_dropped_total", "counter", text, facts.dropped)
    for name, kind, series in facts.families():
        yield labelled(name, kind, "Pushed by clients of this broker (KIP-714).", _lines(series))


def _lines(series: Iterable[tuple[Iterable[tuple[str, str]], float]]) -> Iterator[tuple[str, float]]:
    for pairs, value in series:
        yield labels(**dict(pairs)), value
