"""The metrics that clients push to this broker (KIP-714): the subscription of each client, and its newest metrics.

This state is soft and bounded. A client is kept for three push intervals after its last request. Only metrics in a
subscription are kept, by name and labels, so that they can be shown beside the broker's own. Series beyond a bound are
dropped and counted, whichever client sent them.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from raftlog.base.config.client_metrics import ALL_METRICS, ClientMetricsConfig, client_metrics_config
from raftlog.base.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from raftlog.base.regex import compiled
from raftlog.metadata.image import MetadataImage
from raftlog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from raftlog.security.quotas import Rates, WindowedRate, Windows

if TYPE_CHECKING:
    from raftlog.protocol.otlp import DataPoint, Kind

COMPRESSIONS: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""The codecs with which clients may compress a push, in the order of preference (Kafka's)."""

MAX_CLIENTS: Final = 1_000
"""Beyond them the longest idle client is evicted."""

MAX_SERIES: Final = 20_000
MAX_SERIES_PER_CLIENT: Final = 500
MAX_POINTS: Final = 1_000
"""The maximum number of points read from one push, about ten microseconds each."""

MAX_FIELDS_PER_S: Final = 30_000
"""Fields of metrics that are read for one client address each second, some 2 µs each. Clients make up instance ids, so
the push interval of an instance bounds no client."""

MAX_LABELS: Final = 10
MAX_TEXT_CHARS: Final = 4 << 20
"""The maximum number of characters of all names and labels together."""

MAX_LABEL_CHARS: Final = 200
"""The maximum length of a metric name, label name or label value. Longer text is cut."""

MAX_MATCHED_CHARS: Final = 128
"""The maximum length of a client attribute that a subscription's expression is matched against."""

MIN_MEMORY_S: Final = 60.0
INTERVALS_KNOWN: Final = 3

RESOURCE_LABELS: Final = frozenset(
    {"client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id"}
)
"""Attributes of a whole client that are shown with each of its series (KIP-714)."""

KAFKA_PREFIX: Final = "org.apache.kafka."
_STRANGE: Final = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
"""A series of one client: name and labels."""


class LabelledPoint(NamedTuple):
    """A point as it is shown."""

    key: Key
    kind: Kind
    delta: bool
    value: float


class ClientAttributes(NamedTuple):
    """The labels that a subscription's `match` looks at."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class PushInstructions(NamedTuple):
    """The metrics that a client should push: sorted name prefixes, only `ALL_METRICS` for all, or none."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Push(NamedTuple):
    """One push as received."""

    subscription_id: int
    compression: int
    metrics: bytes
    terminating: bool


@dataclass(slots=True)
class TelemetryClient:
    """One client instance. Times are loop seconds."""

    attributes: ClientAttributes
    asked: PushInstructions
    configs: object
    """The image's configs that `asked` was built from; it is out of date with others."""
    seen_at: float = 0.0
    got_at: float | None = None
    pushed_at: float | None = None
    terminating: bool = False
    series: set[Key] = field(default_factory=set)

    @property
    def known_s(self) -> float:
        return max(MIN_MEMORY_S, INTERVALS_KNOWN * self.asked.interval_ms / 1000)


@dataclass(slots=True)
class MetricFamily:
    """All series of one name. `kind` comes from the first client that pushed it."""

    kind: Kind
    values: dict[tuple[UUID, Labels], float] = field(default_factory=dict)


class ClientTelemetry:
    """All clients that push to one broker."""

    def __init__(self) -> None:
        self._clients: OrderedDict[UUID, TelemetryClient] = OrderedDict()
        self._families: dict[str, MetricFamily] = {}
        self._count = 0
        self._text = 0
        """The number of series, and the characters of their names and labels."""
        self._fields_of_addresses: Rates[str] = Rates(Windows())
        self._configs: object = None
        self._subscriptions: tuple[ClientMetricsConfig, ...] = ()
        self.pushes = 0
        self.refused: Counter[str] = Counter()
        """Pushes and subscription requests that were refused, by the error's name."""
        self.dropped = 0
        """Points that were dropped for lack of room."""

    @property
    def clients(self) -> int:
        return len(self._clients)

    @property
    def series_count(self) -> int:
        return self._count

    def subscribe(
        self, instance_id: UUID, attributes: ClientAttributes, image: MetadataImage, *, now: float
    ) -> PushInstructions:
        """Return a client's subscription.

        Raises ThrottlingQuotaExceeded for a client that requests it again too early.
        """
        client = self._client(instance_id, attributes, image, now=now)
        last = max((at for at in (client.got_at, client.pushed_at) if at is not None), default=None)
        if last is not None and now - last < client.asked.interval_ms / 1000:
            raise self._refused(ThrottlingQuotaExceeded("the client asked before its push interval was over"))
        client.got_at = now
        return client.asked

    def push(
        self,
        instance_id: UUID,
        attributes: ClientAttributes,
        image: MetadataImage,
        push: Push,
        *,
        max_bytes: int,
        now: float,
    ) -> Iterator[None]:
        """Replace a client's metrics by those of a push; yield where other work may go on.

        A push leaves no trace if its iterator is given up. Raises KafkaError for an invalid push.
        """
        client = self._client(instance_id, attributes, image, now=now)
        try:
            self._check(client, push, max_bytes=max_bytes, now=now)
        finally:
            client.terminating = client.terminating or push.terminating
        client.pushed_at = now
        self.pushes += 1
        if push.metrics and client.asked.metrics:
            points: list[LabelledPoint] = []
            yield from self._read(client, push, points, max_bytes=max_bytes, now=now)
            if self._clients.get(instance_id) is client:
                self._store_points(instance_id, client, points)

    def families(self) -> list[tuple[str, Kind, Iterator[tuple[Labels, float]]]]:
        """Return name, kind, and (labels, value) of each series, which is looked at when it is iterated."""
        return [(name, each.kind, self._series_of(each)) for name, each in sorted(self._families.items())]

    def _series_of(self, family: MetricFamily) -> Iterator[tuple[Labels, float]]:
        for (instance_id, labels), value in list(family.values.items()):
            client = self._clients.get(instance_id)
            if client is not None:
                own = ("client_id", client.attributes.client_id), ("client_instance_id", str(instance_id))
                yield own + labels, value

    def forget(self, now: float) -> None:
        """Evict clients that were silent for too long."""
        for instance_id, client in list(self._clients.items()):
            if now - client.seen_at > client.known_s:
                self._remove(instance_id)

    # Inside.

    def _client(
        self, instance_id: UUID, attributes: ClientAttributes, image: MetadataImage, *, now: float
    ) -> TelemetryClient:
        """Return a client with its current subscription.

        A client without a subscription is not kept, since any client may send this request.
        """
        client = self._clients.get(instance_id)
        if client is None:
            client = TelemetryClient(attributes, self._asked(instance_id, attributes, image), image.configs)
            if client.asked.metrics:
                self._make_room()
                self._clients[instance_id] = client
        elif client.configs is not image.configs:
            client.configs = image.configs
            asked = self._asked(instance_id, client.attributes, image)
            if asked != client.asked:
                client.asked, client.got_at, client.pushed_at = asked, None, None
            if not asked.metrics:
                self._remove(instance_id)
        client.seen_at = now
        if instance_id in self._clients:
            self._clients.move_to_end(instance_id)
        return client

    def _make_room(self) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self._remove(next(iter(self._clients)))

    def _asked(
        self, instance_id: UUID, attributes: ClientAttributes, image: MetadataImage
    ) -> PushInstructions:
        """Join the subscriptions that match a client: all their metrics, and the shortest of their intervals."""
        if image.configs is not self._configs:
            self._configs = image.configs
            self._subscriptions = tuple(
                client_metrics_config(configs)
                for (kind, _), configs in sorted(image.configs.items())
                if kind == "client-metrics"
            )
        matching = [each for each in self._subscriptions if _matches(each, attributes)]
        metrics = tuple(sorted({name for each in matching for name in each.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min([ClientMetricsConfig().interval_ms, *(each.interval_ms for each in matching)])
        number = zlib.crc32(f"{instance_id} {interval_ms} {metrics}".encode())
        return PushInstructions(number - (1 << 31), metrics, interval_ms)

    def _check(self, client: TelemetryClient, push: Push, *, max_bytes: int, now: float) -> None:
        if client.terminating:
            raise self._refused(InvalidRequest("the client has already sent its terminating push"))
        asked_since = client.got_at is not None and (
            client.pushed_at is None or client.got_at > client.pushed_at
        )
        early = client.pushed_at is not None and now - client.pushed_at < client.asked.interval_ms / 1000
        if early and not asked_since and not push.terminating:
            raise self._refused(ThrottlingQuotaExceeded("the client pushed before its interval was over"))
        rate = self._rate_of(client, now)
        if rate.throttle_s(MAX_FIELDS_PER_S, now) > 0:
            raise self._refused(
                ThrottlingQuotaExceeded(
                    f"clients of {client.attributes.client_source_address} pushed more than "
                    f"{MAX_FIELDS_PER_S} fields of metrics a second"
                )
            )
        if push.subscription_id != client.asked.subscription_id:
            raise self._refused(
                UnknownSubscriptionId(
                    f"subscription {push.subscription_id} is not the client's; it must ask again"
                )
            )
        if push.compression != NONE and push.compression not in COMPRESSIONS:
            raise self._refused(UnsupportedCompressionType(f"compression {push.compression} is unknown"))
        if len(push.metrics) > max_bytes:
            raise self._refused(
                TelemetryTooLarge(
                    f"the metrics have {len(push.metrics)} bytes, {max_bytes} at most (telemetry.max.bytes)"
                )
            )

    def _refused(self, error: KafkaError) -> KafkaError:
        self.refused[type(error).__name__] += 1
        return error

    def _rate_of(self, client: TelemetryClient, now: float) -> WindowedRate:
        address = client.attributes.client_source_address
        rates = self._fields_of_addresses
        return rates.find(address) or rates.add(address, now)[0]

    def _read(
        self, client: TelemetryClient, push: Push, found: list[LabelledPoint], *, max_bytes: int, now: float
    ) -> Iterator[None]:
        """Append the subscribed points, at most MAX_POINTS of them, to `found`; yield for pauses."""
        from raftlog.protocol.otlp import MetricsReader

        rate, counted = self._rate_of(client, now), 0
        try:
            reader = MetricsReader(decompress(push.compression, push.metrics, max_bytes=max_bytes))
            for each in reader.points():
                if each is None:
                    rate.use(reader.fields_read - counted, now)
                    counted = reader.fields_read
                    yield
                    continue
                resource, point = each
                if not _is_asked(client.asked.metrics, point.name):
                    continue
                if len(found) == MAX_POINTS:
                    self.dropped += 1
                    break
                key = _shown_name(point), _labels(resource, point.attributes)
                found.append(LabelledPoint(key, point.kind, point.delta, point.value))
        except (CorruptMessage, InvalidRecord) as error:
            raise self._refused(InvalidRecord(error.message)) from error
        rate.use(reader.fields_read - counted, now)
        self.dropped += reader.skipped

    def _store_points(
        self, instance_id: UUID, client: TelemetryClient, points: Iterable[LabelledPoint]
    ) -> None:
        before = self._release(instance_id, client)
        for key, kind, delta, value in points:
            name, labels = key
            family = self._families.get(name) or MetricFamily(kind)
            if family.kind != kind or not (key in client.series or self._has_room(client, key)):
                self.dropped += 1
                continue
            if key not in client.series:
                client.series.add(key)
                self._families[name] = family
                self._count += 1
                self._text += _size(key)
            start = before.get(key, 0.0) if delta else 0.0
            family.values[instance_id, labels] = start + value

    def _has_room(self, client: TelemetryClient, key: Key) -> bool:
        return (
            len(client.series) < MAX_SERIES_PER_CLIENT
            and self._count < MAX_SERIES
            and self._text + _size(key) <= MAX_TEXT_CHARS
        )

    def _remove(self, instance_id: UUID) -> None:
        self._release(instance_id, self._clients.pop(instance_id))

    def _release(self, instance_id: UUID, client: TelemetryClient) -> dict[Key, float]:
        """Remove all series of a client, and return them with their values."""
        removed = {}
        for key in client.series:
            name, labels = key
            family = self._families[name]
            removed[key] = family.values.pop((instance_id, labels))
            if not family.values:
                del self._families[name]
            self._count -= 1
            self._text -= _size(key)
        client.series = set()
        return removed


def _matches(subscription: ClientMetricsConfig, attributes: ClientAttributes) -> bool:
    for item in subscription.match:
        name, _, regex = item.partition("=")
        text = getattr(attributes, name.strip())
        if len(text) > MAX_MATCHED_CHARS or not compiled(regex.strip()).fullmatch(text):
            return False
    return True


def _is_asked(metrics: tuple[str, ...], name: str) -> bool:
    return metrics == (ALL_METRICS,) or name.startswith(metrics)


def _shown_name(point: DataPoint) -> str:
    """Return a Prometheus metric name. No other metric of a node begins with kafka_client_."""
    name = _STRANGE.sub("_", point.name.removeprefix(KAFKA_PREFIX)[:MAX_LABEL_CHARS])
    counts = point.kind == "counter" and not name.endswith("_total")
    return f"kafka_client_{name}{'_total' if counts else ''}"


def _labels(resource: Labels, attributes: Labels) -> Labels:
    """Return labels for Prometheus, each name once. Clients cannot use the broker's own label names."""
    found: dict[str, str] = {}
    for name, value in attributes:
        shown = _STRANGE.sub("_", name[:MAX_LABEL_CHARS])
        if shown[0].isdigit() or shown.startswith("__"):
            shown = f"x{shown}"
        if shown not in ("client_id", "client_instance_id") and len(found) < MAX_LABELS:
            found.setdefault(shown, value[:MAX_LABEL_CHARS])
    for name, value in resource:
        if name in RESOURCE_LABELS:
            found.setdefault(name, value[:MAX_LABEL_CHARS])
    return tuple(sorted(found.items()))


def _size(key: Key) -> int:
    name, labels = key
    return len(name) + sum(len(label) + len(value) for label, value in labels)
