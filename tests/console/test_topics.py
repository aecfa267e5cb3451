"""Claims about the lists of topics and groups, and about one topic's groups, totals and settings."""

from __future__ import annotations

import re
from typing import Any

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import group_of, write


def cells_of(page: Any, row: Any) -> dict[str, str]:
    """Return the texts of a row by the titles of its columns."""
    titles = page.locator(".list .head > *").all_inner_texts()
    return dict(zip(titles, row.locator("[role=gridcell]").all_inner_texts(), strict=True))


def test_list_of_topics_shows_what_they_hold_and_who_reads_them(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """Records, size and rate of the brokers, the cleanup policy and retention in force, and the number of groups."""
    for number in range(3):
        write(api, topic, {"data": number}, partition_id=number)
    group_of(own_cluster, topic, f"reads-{topic}")
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_label("Search topics").fill(topic)
    row = page.locator(".list .rows .row")
    row.get_by_text("0/s").wait_for()  # after the second measurement
    found = cells_of(page, row)
    assert (found["Records"], found["Groups"], found["Cleanup"], found["Retention"]) == ("3", "1", "delete", "7 d")
    assert re.fullmatch(r"\d+ B", found["Size"])
    page.get_by_role("button", name="Records").click()
    page.get_by_role("link", name=topic).wait_for()
