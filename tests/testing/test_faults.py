"""Claims about what can be done to real nodes beyond signals: their disks, clocks, power, bits and data."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.faults.power_cut import cut_power
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.testing.cluster import Cluster
from raftlog.testing.probe import view_topic
from raftlog.testing.progress import patient
from raftlog_chaos.runs.rot import RotWatch
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, waiting

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS = 3


SLOW_S = patient(0.3)


class Load:
    """One acks=all producer on a thread, that remembers what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.acked: set[int] = set()
        self._topic = topic
        self._stopping = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered(number))
            number += 1
            self._producer.poll(0.001)

    def _delivered(self, number: int):
        return lambda error, _message: None if error else self.acked.add(number)

    def stop(self) -> set[int]:
        """Stop at once and return what was acknowledged."""
        self._stopping.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(0)
        return self.acked


def make_topic(cluster: Cluster, topic: str) -> None:
    """Make a topic with a replica on every node."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    replicas = len(cluster.nodes)
    new = NewTopic(topic, PARTITIONS, replicas, config={"min.insync.replicas": str(min(2, replicas))})
    admin.create_topics([new])[topic].result(PATIENCE_S)


def wait_whole(cluster: Cluster, topic: str) -> None:
    """Wait until every replica of a topic is in its ISR; only then its end is known for sure."""
    everybody = set(cluster.nodes)

    def is_whole() -> bool:
        found = cluster.partitions(topic)
        return len(found) == PARTITIONS and all(set(each.isr) == everybody for each in found.values())

    cluster.wait_until(is_whole, f"all replicas of {topic} are in the ISR")


def read_all(cluster: Cluster, topic: str) -> list[int]:
    """Read every partition up to its end."""
    wait_whole(cluster, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ended = [], set()
    wait = waiting("all is read", seen=lambda: f"{len(found)} records, and of {ended} all")
    while len(ended) < PARTITIONS:
        wait.pause()
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
        elif message is not None:
            ended.add(message.partition())
    consumer.close()
    return found


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three nodes that can be hurt, and that each test leaves whole."""
    with Cluster(3, faults=True, settings=SMALL) as cluster:
        yield cluster


def test_what_was_acknowledged_survives_a_power_cut_of_all_nodes(three: Cluster) -> None:
    """acks=all means synced on every member of the ISR, so a blackout loses no acknowledged record.

    Disks are slow, so that the first node is soon between a write and its sync, where it dies.
    """
    make_topic(three, "blackout")
    for node_id in three.nodes:
        three.trouble_disk(node_id, DiskTrouble(slow_s=0.05))
    load = Load(three, "blackout")
    three.wait_until(lambda: len(load.acked) > 100, "records are acknowledged")
    three.wait_until(lambda: stands_still_amid_a_write(three, 1), "node 1 has written what it has not synced")
    three.kill(1)
    assert any(path.endswith(".log") for path in three.at_risk(1))
    for node_id in three.nodes:
        three.power_cut(node_id, random.Random(node_id))
    acked = load.stop()
    for node_id, node in three.nodes.items():
        three.trouble_disk(node_id, DiskTrouble())
        node.start()
    three.wait_ready()
    assert acked <= set(read_all(three, "blackout"))


def stands_still_amid_a_write(cluster: Cluster, node_id: int) -> bool:
    """Whether a node has just written what it has not synced; then it is stopped there."""
    cluster.pause(node_id)
    if any(path.endswith(".log") for path in cluster.at_risk(node_id)):
        return True
    cluster.resume(node_id)
    return False


def test_without_syncs_a_blackout_takes_what_was_acknowledged() -> None:
    """log.flush.policy=os is Kafka's weaker promise. If this lost no record, the test above would be worthless."""
    with Cluster(1, faults=True, settings={"log.flush.policy": "os"}) as cluster:
        make_topic(cluster, "relaxed")
        load = Load(cluster, "relaxed")
        cluster.wait_until(lambda: len(load.acked) > 100, "records are acknowledged")
        cluster.kill(1)
        acked = load.stop()
        at_risk = cluster.at_risk(1)
        assert sum(size for path, size in at_risk.items() if path.endswith(".log")) >= len(acked)
        cut_power(cluster.nodes[1].folders, None)
        cluster.restart(1)
        assert not set(read_all(cluster, "relaxed")), "nothing was synced, and nothing unsynced survived"


def test_a_slow_disk_holds_up_acknowledgements_until_it_is_healed(three: Cluster) -> None:
    """A record is acknowledged once it is synced on the ISR; here two of three disks take SLOW_S for that."""
    make_topic(three, "slow")
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "linger.ms": 0})

    def takes_s() -> float:
        began = time.monotonic()
        producer.produce("slow", b"1", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        return time.monotonic() - began

    def trouble_all(trouble: DiskTrouble) -> None:
        for node_id in (1, 2, 3):
            three.trouble_disk(node_id, trouble)

    takes_s()
    trouble_all(DiskTrouble(slow_s=SLOW_S))
    assert takes_s() >= SLOW_S
    trouble_all(DiskTrouble())
    three.wait_until(
        lambda: takes_s() < SLOW_S, "a record is acknowledged sooner than a slow disk would let it"
    )


def test_a_disk_stays_full_over_a_restart_until_it_is_healed(three: Cluster) -> None:
    """The trouble is the machine's, not the process's; a node without room for its records says so."""
    make_topic(three, "full")
    three.trouble_disk(1, DiskTrouble(full=True))
    three.pause(1)
    three.trouble_disk(1, DiskTrouble(full=True, slow_s=0.01))
    three.resume(1)
    three.trouble_disk(1, DiskTrouble(full=True))
    healed = [("fault_injected", "slow-disk"), ("fault_healed", "slow-disk")]
    three.wait_until(lambda: told(three, 1)[-2:] == healed, "the log names what began and ended meanwhile")
    three.kill(1)
    three.nodes[1].start()
    three.wait_until(lambda: told(three, 1)[-1] == ("fault_injected", "full-disk"), "the disk is full again")
    three.trouble_disk(1, DiskTrouble())
    three.wait_until(lambda: told(three, 1)[-1] == ("fault_healed", "full-disk"), "the disk is healed")
    three.restart(1)
    assert told(three, 1)[-1] == ("faults_enabled", None)


def test_a_flipped_bit_is_found_and_what_was_acknowledged_is_still_read(three: Cluster) -> None:
    """One replica rots while the node is down; it never serves that, and the others have everything."""
    make_topic(three, "rot")
    load = Load(three, "rot")
    three.wait_until(lambda: len(load.acked) > 200, "records are acknowledged")
    acked = load.stop()
    three.wait_until(
        lambda: all(1 in each.isr for each in three.partitions("rot").values()), "node 1 has caught up"
    )
    assert not three.flip_bit(1, ["none"], 0.5)
    three.kill(1)
    before = segments(three, 1, "rot")
    rot, watch = three.flip_bit(1, ["rot"], 0.7), RotWatch()
    assert rot is not None and rot.is_due
    watch.note(1, rot, three.nodes[1].log_path)
    after = segments(three, 1, "rot")
    assert sum(bin(a ^ b).count("1") for a, b in zip(before, after, strict=True)) == 1
    assert list(watch.unnoticed())
    three.restart(1)
    assert acked <= set(read_all(three, "rot"))
    assert not list(watch.unnoticed())


def test_a_wiped_node_comes_back_as_a_new_disk_and_gets_everything_again(three: Cluster) -> None:
    """Its vote and its metadata log stay; its partitions, checkpoints and directory id are gone."""
    make_topic(three, "wiped")
    load = Load(three, "wiped")
    three.wait_until(lambda: len(load.acked) > 200, "records are acknowledged")
    load.stop()
    identity = Path(three.nodes[2].folders[0], "meta.properties")
    former = identity.read_text()
    three.kill(2)
    three.wipe(2)
    assert segments(three, 2, "wiped") == b""
    three.restart(2)
    assert identity.read_text() != former
    wait_whole(three, "wiped")
    assert segments(three, 2, "wiped") == segments(three, 1, "wiped")


def test_a_nodes_clock_jumps_and_goes_right_again(three: Cluster) -> None:
    """The broker stamps records with its own wall clock where the topic says so."""
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    new = NewTopic("clock", 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([new])["clock"].result(PATIENCE_S)
    leader = three.leader("clock")
    stamps: list[int] = []
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "linger.ms": 0})
    for offset_ms in (0, 3_600_000, 0):
        three.set_clock(leader, offset_ms)
        producer.produce(
            "clock", b"1", on_delivery=lambda _error, message: stamps.append(message.timestamp()[1])
        )
        assert producer.flush(PATIENCE_S) == 0
    assert stamps[1] - stamps[0] >= 3_600_000
    assert abs(stamps[2] - stamps[0]) < 60_000


@pytest.fixture
def sound() -> Iterator[Cluster]:
    """Three nodes, none of which had a disk replaced: such a voter counts only after some seconds."""
    with Cluster(3, faults=True, settings=SMALL) as cluster:
        yield cluster


def test_controller_that_is_cut_off_loses_its_leaderships_and_nothing_acknowledged(sound: Cluster) -> None:
    """Its clients are still served, and see no leader there. Healed, it drops what was not acknowledged."""
    make_topic(sound, "cut")
    load = Load(sound, "cut")
    sound.wait_until(lambda: len(load.acked) > 100, "records are acknowledged")
    cut = sound.nodes[known(sound.controller_id())]

    def leads() -> bool | None:
        """Whether it says that it leads; None while it closes its clients' connections, as it lost the others."""
        try:
            return cut.node_id in {each.leader for each in view_topic(cut.host, cut.port, "cut").values()}
        except OSError:
            return None

    sound.wait_until(lambda: leads() is True, "the controller leads a partition")
    sound.cut_off(cut.node_id)
    sound.wait_until(lambda: sound.controller_id() not in {None, cut.node_id}, "others elect a controller")
    sound.wait_until(
        lambda: not {-1, cut.node_id} & {each.leader for each in sound.partitions("cut").values()},
        "the others lead all partitions",
    )
    sound.wait_until(lambda: leads() is False, "it says that it leads nothing")
    before = len(load.acked)
    sound.wait_until(lambda: len(load.acked) > before + 100, "records are acknowledged without it")
    sound.cut_off(cut.node_id, is_cut=False)
    acked = load.stop()
    assert acked <= set(read_all(sound, "cut"))


def known(node_id: int | None) -> int:
    assert node_id is not None
    return node_id


def told(cluster: Cluster, node_id: int) -> list[tuple[str, str | None]]:
    """Return (event, fault) of what a node's log says of faults."""
    lines = map(json.loads, cluster.nodes[node_id].log_path.read_text().splitlines())
    return [(line["event"], line.get("fault")) for line in lines if "fault" in line["event"]]


def segments(cluster: Cluster, node_id: int, topic: str) -> bytes:
    """Return the bytes of all segments of a topic on a node."""
    paths = sorted(Path(cluster.nodes[node_id].folders[0]).glob(f"{topic}-*/*.log"))
    return b"".join(path.read_bytes() for path in paths)
