"""Make the pictures of docs/pages/howto/console.md: a cluster with some life in it, as its console shows it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import sync_playwright

from raftlog.testing.cluster import AdminCluster
from tests.console.browser import ARGUMENTS, CHROMIUM
from tests.kit.waits import until

FOLDER = Path(__file__).parents[2] / "docs/pages/img"
SIZE = {"width": 1180, "height": 760}
MAX_BYTES = 150_000
LIFE_S = 40.0
"""How long the lines of the overview are."""
TOPICS = {"orders": 6, "payments": 3, "shipments": 3}


def main() -> None:
    """Write four pictures, and say how large they are."""
    FOLDER.mkdir(exist_ok=True)
    with AdminCluster(3) as cluster, sync_playwright() as playwright:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        made = admin.create_topics([NewTopic(name, count, 3) for name, count in TOPICS.items()])
        for each in made.values():
            each.result(30)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        show(page, cluster, "")
        live(cluster)
        take(page, "overview")
        show(page, cluster, "topics/orders/records")
        take(page, "records")
        show(page, cluster, "topics/orders")
        cluster.kill(3)
        page.get_by_text("offline").nth(3).wait_for()
        take(page, "topic")
        show(page, cluster, f"why/orders/{led_by_another(page)}")
        take(page, "why")
        browser.close()


def show(page: Any, cluster: AdminCluster, path: str) -> None:
    page.goto(f"{cluster.admin_url(1)}/#/{path}")
    page.locator("main h1").wait_for()
    page.wait_for_timeout(1500)


def led_by_another(page: Any) -> int:
    """Return a partition with an earlier leader, by its epoch."""
    rows = page.locator(".list .rows .row")
    epochs = [rows.nth(each).locator(".number").nth(1).inner_text() for each in range(rows.count())]
    return next((number for number, epoch in enumerate(epochs) if epoch.isdigit() and epoch != "0"), 0)


def live(cluster: AdminCluster) -> None:
    """Produce and consume for a while, more and less of it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    began, number = time.monotonic(), 0
    while time.monotonic() - began < LIFE_S:
        for _ in range(10 + 40 * (int(time.monotonic() - began) // 8 % 2)):
            number += 1
            order = {"id": number, "customer": {"name": "Ada", "city": "London"}, "total": number % 97 + 0.5}
            producer.produce(
                "orders", json.dumps(order), key=f"customer-{number % 50}", headers={"source": "shop"}
            )
        producer.flush(10)
        consumer.consume(25, 0.1)
    consumer.close()
    until(lambda: producer.flush(1) == 0, "all is written")


def take(page: Any, name: str) -> None:
    path = FOLDER / f"console-{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.name}: {size // 1000} KB")
    if size > MAX_BYTES:
        sys.exit(f"{path.name} has more than {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
