"""GetTelemetrySubscriptions and PushTelemetry through the bytes of the wire (KIP-714)."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import InvalidRequest, ThrottlingQuotaExceeded, UnknownSubscriptionId
from raftlog.broker.client_telemetry import COMPRESSIONS
from raftlog.broker.handlers import served
from raftlog.broker.handlers.api_versions import SHARE_GROUPS
from raftlog.metadata.image import Usage
from raftlog.protocol.codec import decode_response, encode_response, error_response
from tests.broker.handlers.one_broker import HandlerSetup, cluster_image
from tests.protocol.otlp_bytes import gauge, metrics_data, point

GET, PUSH = 71, 72
CONFIGS = {("client-metrics", "m"): {"metrics": "*", "interval.ms": "60000", "match": "client_id=test"}}


async def test_a_client_gets_an_id_and_the_metrics_to_push() -> None:
    """A client that has an id keeps it; what is pushed are totals, since a scrape shows totals."""
    cluster = HandlerSetup(cluster_image(configs=CONFIGS))
    answer = await cluster.call(GET, 0, client_instance_id=None)
    assert answer.error_code == 0 and answer.client_instance_id is not None
    assert answer.requested_metrics == ("*",)
    assert answer.accepted_compression_types == COMPRESSIONS
    assert answer.push_interval == 60_000
    assert answer.telemetry_max_bytes == 1 << 20
    assert not answer.delta_temporality
    other = await cluster.call(GET, 0, client_instance_id=UUID(int=5))
    assert other.client_instance_id == UUID(int=5)
    with pytest.raises(ThrottlingQuotaExceeded):
        await cluster.call(GET, 0, client_instance_id=UUID(int=5))


@pytest.mark.parametrize("version", range(5))
async def test_the_apis_are_listed_once_there_is_a_subscription(version: int) -> None:
    """As Apache Kafka lists them only where a reporter is configured: clients that find them ask, and print lines."""
    for configs, listed in (({}, set()), (CONFIGS, {GET, PUSH})):
        image = cluster_image(configs=configs)
        cluster = HandlerSetup(msgspec.structs.replace(image, usage=Usage(subscriptions=len(configs))))
        named = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
        answer = await cluster.call(18, version, **named)
        keys = {each.api_key for each in answer.api_keys}
        assert keys == (served() - {GET, PUSH} - SHARE_GROUPS) | listed


async def test_what_is_pushed_is_taken_or_refused_with_a_code() -> None:
    """A push without an id, with an unknown subscription, and a valid push."""
    cluster = HandlerSetup(cluster_image(configs=CONFIGS))
    metrics = metrics_data(gauge("a", point(1)))
    asked = await cluster.call(GET, 0, client_instance_id=None)
    fields = {
        "client_instance_id": asked.client_instance_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
    }
    with pytest.raises(UnknownSubscriptionId):
        await cluster.call(PUSH, 0, subscription_id=asked.subscription_id ^ 1, **fields)
    good = await cluster.call(PUSH, 0, subscription_id=asked.subscription_id, **fields)
    assert good.error_code == 0
    assert [name for name, _, _ in cluster.broker.telemetry.families()] == ["kafka_client_a"]
    with pytest.raises(InvalidRequest):
        await cluster.call(PUSH, 0, subscription_id=1, **{**fields, "client_instance_id": None})


@pytest.mark.parametrize("api_key", [GET, PUSH])
def test_a_refusal_is_an_answer_of_the_api(api_key: int) -> None:
    """A client that is throttled keeps its connection."""
    response = error_response(api_key, 0, ThrottlingQuotaExceeded.code)
    frame = memoryview(encode_response(api_key, 0, 7, response))[4:]
    assert decode_response(api_key, 0, frame)[1].error_code == 89
