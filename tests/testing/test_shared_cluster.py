"""Claims about one cluster for several processes, with threads for processes: locks belong to open files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from raftlog.testing.evidence import NodeAddress
from raftlog.testing.shared_cluster import shared_cluster


class FakeCluster:
    """A cluster that only counts."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def start(self) -> None:
        self._seen.append("start")

    def close(self) -> None:
        self._seen.append("close")

    def node_addresses(self) -> list[NodeAddress]:
        return [NodeAddress(1, f"host:{len(self._seen)}")]


def test_the_owner_closes_it_only_after_the_last_user(tmp_path):
    """A worker with no more tests waits for the others before it takes the cluster down."""
    seen: list[str] = []
    owner_in, owner_may_leave, user_in, user_may_leave = Event(), Event(), Event(), Event()

    def use(entered: Event, may_leave: Event, name: str) -> list[NodeAddress]:
        with shared_cluster(tmp_path, lambda: FakeCluster(seen)) as nodes:
            entered.set()
            may_leave.wait(60)
            seen.append(f"{name} leaves")
        return nodes

    with ThreadPoolExecutor(2) as threads:
        owner = threads.submit(use, owner_in, owner_may_leave, "owner")
        assert owner_in.wait(60)
        user = threads.submit(use, user_in, user_may_leave, "user")
        assert user_in.wait(60)
        owner_may_leave.set()
        user_may_leave.set()
        assert owner.result(60) == user.result(60) == [NodeAddress(1, "host:1")]
    assert seen[0] == "start"
    assert seen[-1] == "close"
    assert sorted(seen[1:-1]) == ["owner leaves", "user leaves"]


def test_a_process_that_comes_after_the_owner_starts_a_new_cluster(tmp_path):
    """No process gets the address of a cluster that is gone."""
    seen: list[str] = []
    for _ in range(2):
        with shared_cluster(tmp_path, lambda: FakeCluster(seen)):
            pass
    assert seen == ["start", "close"] * 2


def test_a_start_that_fails_leaves_no_owner(tmp_path):
    """The next process tries for itself."""
    seen: list[str] = []

    class Broken(FakeCluster):
        def start(self) -> None:
            raise OSError("no ports")

    try:
        with shared_cluster(tmp_path, lambda: Broken(seen)):
            raise AssertionError("it began")
    except OSError:
        pass
    with shared_cluster(tmp_path, lambda: FakeCluster(seen)) as nodes:
        assert nodes
