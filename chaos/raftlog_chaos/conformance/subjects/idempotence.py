"""Producers with ids: sequences, retries, epochs."""

from __future__ import annotations

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session


@history()
def sequences_without_a_gap(s: Session) -> None:
    """Batches that follow each other are stored, and a repeated one is answered as before."""
    topic = s.topic()
    producer = s.init_producer()
    for sequence in (0, 2, 2, 0):
        batch = s.batch(
            b"a", b"b", producer_id=producer["producer_id"], producer_epoch=0, base_sequence=sequence
        )
        s.produce(topic, batch)
    s.read(topic)


@history(nodes=3, restarts=True, slow=True)
def a_batch_sent_again_to_the_next_leader(s: Session) -> None:
    """The next leader knows what the killed one stored, and answers a repeated batch as before."""
    topic = s.topic(replicas=3, configs={"min.insync.replicas": 2})
    fields = {"producer_id": s.init_producer()["producer_id"], "producer_epoch": 0}
    for sequence in (0, 1):
        s.produce(topic, s.batch(b"a", base_sequence=sequence, **fields))
    s.kill(s.leader(topic))
    for sequence in (1, 0, 3, 2):
        s.produce(topic, s.batch(b"a", base_sequence=sequence, **fields))
    s.read(topic)


@history({"1": 1, "5": 5, "the largest": 2**31 - 3})
def a_sequence_out_of_order(s: Session, sequence: int) -> None:
    """A batch that leaves out sequences is refused, and the next right one is stored."""
    topic = s.topic()
    producer = s.init_producer()["producer_id"]
    s.produce(topic, s.batch(b"a", b"b", producer_id=producer, producer_epoch=0, base_sequence=0))
    s.produce(topic, s.batch(b"c", producer_id=producer, producer_epoch=0, base_sequence=2 + sequence))
    s.produce(topic, s.batch(b"d", producer_id=producer, producer_epoch=0, base_sequence=2))
    s.read(topic)
