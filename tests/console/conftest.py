"""A headless Chromium that looks at real nodes, and the log of each page, which must stay empty of errors."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.browser import ARGUMENTS, CHROMIUM
from tests.kit.waits import PATIENCE_MS, poll_until, until

COORDINATOR_COMES = (14, 15, 16)
"""Codes of Kafka: it loads, there is none, it is another."""


TEXT_LEFT = """each => {
  const all = new Range();
  all.selectNodeContents(each);
  return all.getBoundingClientRect().left;
}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need a browser."""
    for each in items:
        if "/tests/console/" in str(each.path):
            each.add_marker(pytest.mark.console)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="make console-test")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[AdminCluster]:
    """Three nodes that can hurt themselves."""
    with AdminCluster(3, faults=True) as running:
        yield running


@pytest.fixture
def api(own_cluster: AdminCluster) -> Api:
    """The API of node 1, from its cluster."""
    url = own_cluster.admin_url(1)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    return Api(url, f"/v3/clusters/{found['cluster_id']}")


@pytest.fixture
def topic(api: Api) -> str:
    """A topic of three partitions with three replicas each. It stays, since a page may look at it until it closes."""
    name = f"orders-{uuid.uuid4().hex[:6]}"
    wanted = {"topic_name": name, "partitions_count": 3, "replication_factor": 3}
    assert api.ask("POST", "/topics", wanted).status == 201
    node = Api(f"http://{api.host}:{api.port}")
    until(lambda: node.get(f"/v1/topics/{name}/replicas").status == 200, "the topic is known")
    return name


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A new page without state. An error in its log, or a breach of its policy, fails the test.

    A test that takes the node away, or has it refuse a request, has the marker `errors_expected`.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, errors = context.new_page(), []
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield page
    print(page.locator("body").inner_text())  # shown with a failure
    context.close()
    if not request.node.get_closest_marker("errors_expected"):
        assert errors == []


def text_left(element: Any) -> float:
    """Return where the text of an element begins. A list may replace its rows meanwhile, so it is asked again."""
    found = [0.0]

    def is_shown() -> bool:
        found[0] = element.evaluate(TEXT_LEFT)
        return found[0] > 0

    until(is_shown, "the text is on the page")
    return found[0]


def write(api: Api, topic: str, value: Any, **more: Any) -> None:
    """Produce one record as JSON of the API."""
    report = api.ask("POST", f"/topics/{topic}/records", {"value": value, **more}).body
    assert report["error_code"] == 200, json.dumps(report)


def group_of(cluster: AdminCluster, topic: str, group: str) -> None:
    """Have a group commit an offset, once its coordinator has loaded."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})

    def commits() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_COMES:
                raise
            return False
        return True

    poll_until(commits, "the group has committed")
    consumer.close()


def queue_of(node: Api, topic: str, group: str) -> None:
    """Have a share group begin with the first records of a topic, once its coordinator has loaded."""
    wanted = {"topic_name": topic, "to": "earliest"}
    poll_until(
        lambda: node.ask("POST", f"/v1/share-groups/{group}/reset", wanted).status == 200,
        "the share group has its offsets",
    )
