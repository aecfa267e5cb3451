"""Leaders of `_schemas` are killed while clients register: each id stays one schema, and each answer stays true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.testing.cluster import AdminCluster
from tests.admin.test_schema_registry import Said, ask, named

WORKERS = 3
KILLED = 2


@pytest.fixture
def urls(own_cluster: AdminCluster) -> Iterator[list[str]]:
    found = [own_cluster.schema_registry_url(each) for each in own_cluster.nodes]
    assert ask(found[0], "GET", "/subjects").status == 200
    yield found


def try_all(urls: list[str], method: str, path: str, body: Any = None) -> Said | None:
    """Return the first answer that is no failure of the server, as a client with several URLs gets it."""
    for url in urls:
        try:
            said = ask(url, method, path, body)
        except OSError:
            continue
        if said.status < 500:
            return said
    return None


def test_killed_leaders_give_no_id_twice(own_cluster: AdminCluster, urls: list[str]) -> None:
    """Registrations go to all nodes, also to those that only forward; what was answered is there in the end."""
    over, enough = Event(), Event()
    answered: dict[tuple[str, str], int] = {}

    def register(worker: int) -> None:
        number = 0
        while not over.is_set():
            subject, text = f"s{number % 5}-{worker}", named(f"R{worker}", f"f{number}")
            body = {"schema": text.replace('"int"', '"int", "default": 0')}
            said = try_all(urls[worker:] + urls[:worker], "POST", f"/subjects/{subject}/versions", body)
            if said is not None:
                assert said.status == 200, said
                answered[subject, body["schema"]] = said.body["id"]
                number += 1
            if len(answered) % 20 == 19:
                enough.set()

    with ThreadPoolExecutor(WORKERS) as threads:
        working = [threads.submit(register, worker) for worker in range(WORKERS)]
        try:
            for _ in range(KILLED):
                enough.clear()
                own_cluster.wait_until(enough.is_set, "schemas are registered", seen=lambda: len(answered))
                victim = own_cluster.kill_leader(SCHEMAS_TOPIC)
                enough.clear()
                own_cluster.wait_until(enough.is_set, "another node registers", seen=lambda: len(answered))
                own_cluster.restart(victim)
        finally:
            over.set()
        for each in working:
            each.result()
    assert len(set(answered.values())) == len({text for _, text in answered})
    for (subject, text), schema_id in answered.items():
        for url in urls:
            found = ask(url, "GET", f"/schemas/ids/{schema_id}").body
            assert json.loads(found["schema"]) == json.loads(text)
        looked_up = ask(urls[0], "POST", f"/subjects/{subject}", {"schema": text})
        assert looked_up.body["id"] == schema_id
