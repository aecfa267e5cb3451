"""Claims about the metrics that clients push (KIP-714): subscriptions, kept values, and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest

from raftlog.base.errors import (
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from raftlog.broker import client_telemetry
from raftlog.broker.client_telemetry import (
    COMPRESSIONS,
    MAX_FIELDS_PER_S,
    ClientAttributes,
    ClientTelemetry,
    Push,
    PushInstructions,
)
from raftlog.metadata.image import MetadataImage
from raftlog.records.compression import GZIP, NONE, compress
from tests.protocol.otlp_bytes import gauge, metrics_data, point, total

MAX_BYTES = 100_000
INTERVAL_S = 10.0
ALL = {"metrics": "*", "interval.ms": "10000"}


def image_of(**subscriptions: Mapping[str, str]) -> MetadataImage:
    return MetadataImage(configs={("client-metrics", name): each for name, each in subscriptions.items()})


def attributes_of(client: UUID, **fields: str) -> ClientAttributes:
    found = ClientAttributes(str(client), "app-1", "apache-kafka-java", "4.3.0", "10.0.0.9", "50000")
    return found._replace(**fields)


class Broker:
    """The telemetry of one broker; the test moves its clock."""

    def __init__(self, image: MetadataImage) -> None:
        self.telemetry = ClientTelemetry()
        self.image = image
        self.now = 1_000.0
        self.pauses = 0
        """Of the last push."""

    def subscribe(self, number: int = 1, **fields: str) -> PushInstructions:
        client = UUID(int=number)
        return self.telemetry.subscribe(client, attributes_of(client, **fields), self.image, now=self.now)

    def push(
        self,
        *metrics: bytes,
        number: int = 1,
        compression: int = NONE,
        subscription_id: int | None = None,
        terminating: bool = False,
        raw: bytes | None = None,
        **resource: str,
    ) -> None:
        client = UUID(int=number)
        attributes = attributes_of(client)
        if subscription_id is None:
            other = ClientTelemetry().subscribe(client, attributes, self.image, now=self.now)
            subscription_id = other.subscription_id
        encoded = compress(compression, metrics_data(*metrics, **resource)) if raw is None else raw
        push = Push(subscription_id, compression, encoded, terminating)
        pauses = self.telemetry.push(client, attributes, self.image, push, max_bytes=MAX_BYTES, now=self.now)
        self.pauses = sum(1 for _ in pauses)

    def push_later(self, *metrics: bytes, number: int = 1, **more: str) -> None:
        """Push once the interval is over."""
        self.now += INTERVAL_S
        self.push(*metrics, number=number, **more)

    def shown(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return values by name and by the values of the labels that are no client's."""
        return {
            name: {tuple(value for _, value in labels[2:]): number for labels, number in series}
            for name, _, series in self.telemetry.families()
        }


@pytest.fixture
def broker() -> Broker:
    return Broker(image_of(everything=ALL))


# --- subscriptions


def test_without_a_subscription_a_client_is_asked_for_nothing() -> None:
    """Every client that can asks, once in five minutes (Kafka's default)."""
    broker = Broker(image_of())
    asked = broker.subscribe()
    assert (asked.metrics, asked.interval_ms) == ((), 300_000)
    broker.push(gauge("a", point(1)))
    assert (broker.telemetry.clients, broker.shown()) == (0, {}), "nothing is kept of it"


def test_subscriptions_that_match_are_joined() -> None:
    """All their metrics, and the shortest of their intervals."""
    broker = Broker(
        image_of(
            one={"metrics": "b,a", "interval.ms": "60000", "match": "client_id=app-.*"},
            two={"metrics": "c", "interval.ms": "20000", "match": "client_software_version=4[.].*"},
            other={"metrics": "d", "interval.ms": "100", "match": "client_id=app-.*,client_source_port=1"},
        )
    )
    asked = broker.subscribe()
    assert (asked.metrics, asked.interval_ms) == (("a", "b", "c"), 20_000)
    assert broker.subscribe(2, client_id="my-app-1").metrics == ("c",)
    assert broker.subscribe(3, client_id="app-" + "1" * 200).metrics == ("c",)


def test_a_star_asks_for_all() -> None:
    """As Kafka's broker sends it, which all clients understand."""
    broker = Broker(image_of(one={"metrics": "a"}, two={"metrics": "*,b"}))
    assert broker.subscribe().metrics == ("*",)


def test_the_subscription_id_is_the_same_on_every_broker_and_another_after_a_change(broker: Broker) -> None:
    """A client that changes brokers goes on; a client with a changed subscription asks again."""
    first = broker.subscribe().subscription_id
    assert Broker(broker.image).subscribe().subscription_id == first
    assert broker.subscribe(2).subscription_id != first
    assert -(2**31) <= first < 2**31
    broker.now += INTERVAL_S
    broker.image = image_of(everything={"metrics": "a", "interval.ms": "10000"})
    with pytest.raises(UnknownSubscriptionId):
        broker.push(gauge("a", point(1)), subscription_id=first)
    assert broker.subscribe().subscription_id != first, "at once, though the interval is not over"


# --- what is taken


def test_what_a_client_pushed_last_is_shown_by_name_and_labels(broker: Broker) -> None:
    """Names of Prometheus; counters end in _total; labels of the client as a whole are on each series."""
    broker.subscribe()
    metrics = (
        gauge("org.apache.kafka.consumer.fetch.rate", point(0.5, node_id="1"), point(1.5, node_id="2")),
        total("org.apache.kafka.consumer.records", point(3)),
    )
    broker.push(*metrics, group_id="g", secret="not shown")
    assert broker.shown() == {
        "kafka_client_consumer_fetch_rate": {("g", "1"): 0.5, ("g", "2"): 1.5},
        "kafka_client_consumer_records_total": {("g",): 3},
    }
    (name, kind, series), *_ = broker.telemetry.families()
    assert kind == "gauge" and name.endswith("rate")
    labels, _ = next(series)
    assert labels == (
        ("client_id", "app-1"),
        ("client_instance_id", str(UUID(int=1))),
        ("group_id", "g"),
        ("node_id", "1"),
    )
    broker.push_later(gauge("org.apache.kafka.consumer.other", point(1)))
    assert broker.shown() == {"kafka_client_consumer_other": {(): 1}}


def test_a_client_cannot_take_the_name_of_another_metric_or_of_a_label(broker: Broker) -> None:
    """One scrape must not have a name twice with two kinds, or a label twice."""
    broker.push(
        gauge("raftlog.node.ready", point(1, client_id="someone", **{"9 lives": "x", "__name__": "y"})),
        total("same.total", point(1)),
        gauge("same.total", point(2)),
    )
    assert [name for name, _, _ in broker.telemetry.families()] == [
        "kafka_client_raftlog_node_ready",
        "kafka_client_same_total",
    ]
    assert broker.telemetry.dropped == 1
    ((labels, _),) = broker.telemetry.families()[0][2]
    assert dict(labels) == {
        "client_id": "app-1",
        "client_instance_id": str(UUID(int=1)),
        "x9_lives": "x",
        "x__name__": "y",
    }


@pytest.mark.parametrize("compression", [NONE, *COMPRESSIONS])
def test_every_compression_that_is_offered_is_read(broker: Broker, compression: int) -> None:
    """Clients choose the first that they can."""
    broker.push(gauge("a", point(1)), compression=compression)
    assert broker.shown() == {"kafka_client_a": {(): 1}}


def test_what_was_added_since_the_last_push_is_added(broker: Broker) -> None:
    """Clients are asked for totals; differences are understood, too."""
    broker.push(total("a", point(3), delta=True))
    broker.push_later(total("a", point(4), delta=True))
    assert broker.shown() == {"kafka_client_a_total": {(): 7}}


def test_only_what_was_asked_for_is_kept() -> None:
    """A client cannot fill a dashboard with metrics outside its subscription."""
    broker = Broker(image_of(some={"metrics": "a.", "interval.ms": "10000"}))
    broker.push(gauge("a.b", point(1)), gauge("b.a", point(1)))
    assert broker.shown() == {"kafka_client_a_b": {(): 1}}
    silent = Broker(image_of())
    silent.push(gauge("a", point(1)))
    assert silent.shown() == {}


# --- what is refused


def refusal(broker: Broker, expected: type[KafkaError], **push: object) -> None:
    before = broker.telemetry.refused[expected.__name__]
    with pytest.raises(expected):
        broker.push(gauge("a", point(1)), **push)
    assert broker.telemetry.refused[expected.__name__] == before + 1


def test_a_push_is_refused_with_the_protocols_errors(broker: Broker) -> None:
    """An unknown subscription, an unknown codec, too many bytes, and bytes that are none (KIP-714)."""
    refusal(broker, UnknownSubscriptionId, subscription_id=77)
    refusal(broker, UnsupportedCompressionType, compression=9, raw=b"x")
    refusal(broker, TelemetryTooLarge, raw=b"x" * (MAX_BYTES + 1))
    broker.push_later()
    broker.now += INTERVAL_S
    refusal(broker, InvalidRecord, raw=b"\xff")
    assert broker.shown() == {}


def test_a_bomb_is_refused_by_what_it_would_become(broker: Broker) -> None:
    """Compressed it is small."""
    raw = compress(GZIP, bytes(MAX_BYTES + 1))
    assert len(raw) < 1_000
    refusal(broker, InvalidRecord, compression=GZIP, raw=raw)


def test_asking_and_pushing_too_often_is_throttled(broker: Broker) -> None:
    """Once in an interval, but for the first push after an answer and the last of a client that ends."""
    broker.subscribe()
    with pytest.raises(ThrottlingQuotaExceeded):
        broker.subscribe()
    broker.push(gauge("a", point(1)))
    refusal(broker, ThrottlingQuotaExceeded)
    broker.push_later(gauge("a", point(2)))
    broker.push(gauge("a", point(3)), terminating=True)
    assert broker.shown() == {"kafka_client_a": {(): 3}}
    broker.now += INTERVAL_S
    refusal(broker, InvalidRequest)


def test_a_client_that_is_asked_for_nothing_any_more_is_forgotten_with_what_it_pushed(broker: Broker) -> None:
    """Its next push or question is answered with the new subscription."""
    broker.push(gauge("a", point(1)))
    broker.image = image_of()
    assert broker.subscribe().metrics == ()
    assert (broker.telemetry.clients, broker.telemetry.series_count) == (0, 0)


def test_a_client_that_is_silent_is_forgotten(broker: Broker) -> None:
    """After three intervals, and not before a minute."""
    broker.push(gauge("a", point(1)))
    broker.telemetry.forget(broker.now + 60)
    assert broker.telemetry.clients == 1
    broker.telemetry.forget(broker.now + 61)
    assert (broker.telemetry.clients, broker.telemetry.series_count, broker.shown()) == (0, 0, {})


# --- what bounds it


def test_clients_and_series_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that was silent for longest goes; a series beyond the bounds is dropped and counted."""
    monkeypatch.setattr(client_telemetry, "MAX_CLIENTS", 3)
    monkeypatch.setattr(client_telemetry, "MAX_SERIES_PER_CLIENT", 4)
    monkeypatch.setattr(client_telemetry, "MAX_SERIES", 10)
    for number in range(1, 6):
        many = [gauge(f"m{each}", point(each)) for each in range(6)]
        broker.push(*many, number=number)
    assert (broker.telemetry.clients, broker.telemetry.series_count) == (3, 10)
    assert broker.telemetry.dropped == 2 + 2 + 4 + 2 + 2
    broker.telemetry.forget(broker.now + 100)
    assert broker.telemetry.series_count == 0


def test_texts_are_cut_and_their_sum_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name or a label of any length costs two hundred characters, ten labels at most."""
    many = {f"l{number:02}": "v" * 1_000 for number in range(15)}
    broker.push(gauge("n" * 5_000, point(1, **many)))
    ((name, values),) = broker.shown().items()
    assert len(name) == len("kafka_client_") + 200
    ((labels, _),) = values.items()
    assert [len(each) for each in labels] == [200] * 10
    monkeypatch.setattr(client_telemetry, "MAX_TEXT_CHARS", 2_500)
    broker.push_later(gauge("n" * 5_000, point(1, **many)), gauge("m", point(1)))
    assert list(broker.shown()) == [f"kafka_client_{'n' * 200}", "kafka_client_m"][::-1]
    broker.push_later(gauge("n" * 5_000, point(1, **many)), gauge("m" * 200, point(1, **many)))
    assert len(broker.shown()) == 1


def test_series_that_come_and_go_leave_nothing(broker: Broker) -> None:
    """The sums go back to zero with what they count."""
    for number in range(5):
        broker.push_later(gauge(f"a{number}", point(1), point(2, x="y")), total("b", point(number)))
    broker.push_later()
    assert broker.telemetry.series_count == 0
    assert broker.shown() == {}


def test_one_address_has_a_share_of_fields_however_many_instances_it_makes_up(broker: Broker) -> None:
    """Instance ids are the clients' to choose, so their intervals bound no address; later pushes are taken again."""
    many = gauge("a", *(point(1, x=str(number)) for number in range(1_000)))
    with pytest.raises(ThrottlingQuotaExceeded, match=r"10\.0\.0\.9"):
        for number in range(1_000):
            broker.push(many, number=number)
    fields = 7 * 1_000  # of one push, about
    assert 10 * MAX_FIELDS_PER_S / fields - 2 <= broker.telemetry.pushes <= 10 * MAX_FIELDS_PER_S / fields + 2
    broker.now += 60
    broker.push(many, number=2_000)


def test_a_large_push_pauses_and_a_small_one_does_not(broker: Broker) -> None:
    """Other requests get the loop meanwhile."""
    broker.push(gauge("a", point(1)))
    assert broker.pauses == 0
    broker.push_later(gauge("a", *(point(1, x=str(number)) for number in range(1_000))))
    assert broker.pauses >= 5


def test_a_push_that_is_given_up_or_whose_client_is_forgotten_meanwhile_shows_nothing(broker: Broker) -> None:
    """The metrics of the push before stay until the client is forgotten."""
    broker.push(gauge("a", point(1)))
    many = metrics_data(gauge("b", *(point(1, x=str(number)) for number in range(1_000))))
    client = UUID(int=1)
    subscription_id = (
        ClientTelemetry()
        .subscribe(client, attributes_of(client), broker.image, now=broker.now)
        .subscription_id
    )
    push = Push(subscription_id, NONE, many, terminating=False)

    def begin() -> Iterator[None]:
        broker.now += INTERVAL_S
        pauses = broker.telemetry.push(
            client, attributes_of(client), broker.image, push, max_bytes=MAX_BYTES, now=broker.now
        )
        next(pauses)
        return pauses

    begin()
    assert broker.shown() == {"kafka_client_a": {(): 1}}
    pauses = begin()
    broker.telemetry.forget(broker.now + 1_000)
    for _ in pauses:
        pass
    assert (broker.shown(), broker.telemetry.series_count) == ({}, 0)
