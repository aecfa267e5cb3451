"""The words of drawn histories about offsets that members of groups commit in transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from raftlog_chaos.conformance.generation import classic, consumers
from raftlog_chaos.conformance.generation.classic import ClassicWords
from raftlog_chaos.conformance.generation.consumers import ConsumerWords
from raftlog_chaos.conformance.generation.groups import GroupWords
from raftlog_chaos.conformance.generation.plan import Phrase, Step, Theme, Word, mostly
from raftlog_chaos.conformance.generation.scene import CLASSIC_GROUP, CONSUMER_GROUP
from raftlog_chaos.conformance.members import Fields

PRODUCER: Final = "txn-0"
Draw = Callable[[Random], Mapping[str, Any]]


class GroupTransactions(GroupWords, ClassicWords, ConsumerWords):
    """Commits in a transaction, of which the coordinator checks the member and its generation or epoch."""

    def classic_txn_commit(self, *, member: str, generation: str, claim: str, **rest: Any) -> None:
        """Commit an offset in a transaction as a member of the classic group."""
        self._commit_in_txn(CLASSIC_GROUP, self.as_member(member, generation, claim), **rest)

    def consumer_txn_commit(self, *, member: str, epoch: str, **rest: Any) -> None:
        """Commit an offset in a transaction as a member of the consumer group."""
        self._commit_in_txn(CONSUMER_GROUP, self.as_consumer(member, epoch), **rest)

    def _commit_in_txn(
        self, group: str, fields: Fields, *, version: int, is_added: bool, partition: int, offset: int
    ) -> None:
        if is_added:
            self.add_offsets(producer=PRODUCER, epoch=0, group=group, version=3)
        topics, ids = self.offsets_of(partition, offset), self.ids_of(PRODUCER, 0)
        self.ask_txn_commit(group, version, topics=topics, **ids, **fields)


def _in_txn(draw: Draw) -> Draw:
    def drawn(random: Random) -> Mapping[str, Any]:
        return {
            **draw(random),
            "version": random.choice((2, 3, 4, 5, 5, 5)),
            "is_added": random.random() < 0.5,
            "offset": random.choice((0, 1, 5)),
            "partition": mostly(random, 0, 1),
        }

    return drawn


def _transaction(word: str, draw: Draw) -> Phrase:
    """Return a phrase: a transaction that commits offsets of a group."""

    def drawn(random: Random) -> list[Step]:
        usual = {"producer": PRODUCER, "epoch": 0}
        init = {"producer": PRODUCER, "claim": "none", "timeout_ms": 60_000, "version": 4}
        ending = {**usual, "committed": random.random() < 0.6, "version": random.choice((3, 4, 5, 5))}
        return [Step("init_txn", init), Step(word, draw(random)), Step("end_txn", ending)]

    return drawn


def _theme(theme: Theme, word: str, draw: Draw) -> Theme:
    """Return a theme of groups with commits in transactions."""
    phrase = ({word}, _transaction(word, _in_txn(draw)))
    return theme._replace(
        words={**theme.words, word: Word(3, _in_txn(draw))}, phrases=(*theme.phrases, phrase)
    )


CLASSIC: Final = _theme(classic.THEME, "classic_txn_commit", classic.of_member)
CONSUMERS: Final = _theme(consumers.THEME, "consumer_txn_commit", consumers.of_epoch)
