"""Orders replicas so that brokers lead equally many partitions: of each topic, and of all together.

The order of a partition's replicas changes, and no byte moves. A change of leaders may go over other brokers: one takes
a partition from the next, which takes another from the third.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

PartitionKey = tuple[str, int]
Changes = list[tuple[PartitionKey, int, int]]
"""Keys of partitions, each with its old leader and its new."""


class _Topic:
    """The leaders of one topic's partitions; `by_pair[a][b]`: the partitions that a leads and b has too."""

    def __init__(self, partitions: Mapping[PartitionKey, Sequence[int]]) -> None:
        self.led: Counter[int] = Counter()
        self.by_pair: dict[int, dict[int, dict[PartitionKey, None]]] = {}
        self._replicas = partitions
        for key, replicas in partitions.items():
            self._note(key, replicas[0])

    def _note(self, key: PartitionKey, leader: int) -> None:
        self.led[leader] += 1
        pairs = self.by_pair.setdefault(leader, {})
        for other in self._replicas[key]:
            if other != leader:
                pairs.setdefault(other, {})[key] = None

    def change(self, key: PartitionKey, old: int, new: int) -> None:
        """Have another replica lead a partition."""
        self.led[old] -= 1
        for other in self._replicas[key]:
            if other != old:
                del self.by_pair[old][other][key]
        self._note(key, new)

    def path(self, start: int, goals: set[int]) -> Changes:
        """Return changes that take a partition from `start` and give one to a goal; none if that is not possible."""
        came: dict[int, tuple[int, PartitionKey]] = {}
        queue = deque([start])
        while queue:
            number = queue.popleft()
            if number in goals:
                changes = []
                while number != start:
                    before, key = came[number]
                    changes.append((key, before, number))
                    number = before
                return changes
            for other, keys in self.by_pair.get(number, {}).items():
                if keys and other != start and other not in came:
                    came[other] = number, next(iter(keys))
                    queue.append(other)
        return []


class LeaderTable:
    """The leaders of all topics' partitions. `partitions`: the live replicas of each, by topic; the first leads."""

    def __init__(
        self, brokers: Iterable[int], partitions: Mapping[str, Mapping[PartitionKey, Sequence[int]]]
    ) -> None:
        self.leaders = {key: replicas[0] for topic in partitions.values() for key, replicas in topic.items()}
        self._brokers = sorted(brokers)
        self._topics = [_Topic(partitions[name]) for name in sorted(partitions)]
        self._led = Counter(self.leaders.values())

    def even_out(self) -> None:
        """Make numbers of led partitions equal, within one where that is possible: first of each topic, then of all.

        The second never undoes the first.
        """
        for topic in self._topics:
            self._even_out_topic(topic)
        while sum(map(self._even_out_all, self._topics)):
            pass
        while self._over_several_topics():
            pass

    def _apply(self, topic: _Topic, changes: Changes) -> None:
        for key, old, new in changes:
            topic.change(key, old, new)
            self.leaders[key] = new
            self._led.update({old: -1, new: 1})

    def _even_out_topic(self, topic: _Topic) -> None:
        led = topic.led
        stuck: set[int] = set()
        while True:
            start = max(
                (each for each in self._brokers if each not in stuck),
                key=lambda each: (led[each], self._led[each], -each),
                default=None,
            )
            if start is None or led[start] < 2:
                return
            goals = {each for each in self._brokers if led[each] + 1 < led[start]}
            changes = topic.path(start, goals) if goals else []
            self._apply(topic, changes)
            if not changes:
                stuck.add(start)

    def _even_out_all(self, topic: _Topic) -> bool:
        """Give partitions of a topic from brokers that lead many to brokers that lead few. Return whether any moved."""
        moved = False
        fewest = min(self._led[each] for each in self._brokers)
        for start in self._brokers:
            if self._led[start] > fewest + 1 and topic.led[start]:
                goals = self._lower(topic, start)
                goals = {each for each in goals if self._led[each] + 1 < self._led[start]}
                changes = topic.path(start, goals) if goals else []
                self._apply(topic, changes)
                moved = moved or bool(changes)
        return moved

    def _lower(self, topic: _Topic, start: int) -> set[int]:
        """Return the brokers that may lead a partition more of a topic for one less of `start`."""
        led = topic.led
        return {each for each in self._brokers if led[each] < led[start]}

    def _over_several_topics(self) -> bool:
        """Take a partition from a broker that leads many, and give one to a broker that leads few, over others."""
        fewest = min((self._led[each] for each in self._brokers), default=0)
        if all(self._led[each] <= fewest + 1 for each in self._brokers):
            return False
        pairs = self._pairs()
        for start in sorted(self._brokers, key=lambda each: (-self._led[each], each)):
            came = {start: start}
            queue = deque([start])
            while queue:
                number = queue.popleft()
                if self._led[number] + 1 < self._led[start]:
                    return self._along(pairs, came, start, number)
                for other in pairs.get(number, ()):
                    if other not in came:
                        came[other] = number
                        queue.append(other)
        return False

    def _pairs(self) -> dict[int, dict[int, _Topic]]:
        """Return from which brokers a partition may go to which others, each with such a topic."""
        pairs: dict[int, dict[int, _Topic]] = {each: {} for each in self._brokers}
        for topic in self._topics:
            for start, led in topic.led.items():
                for goal in self._lower(topic, start).difference(pairs[start]) if led else ():
                    if topic.path(start, {goal}):
                        pairs[start][goal] = topic
        return pairs

    def _along(
        self, pairs: Mapping[int, Mapping[int, _Topic]], came: Mapping[int, int], start: int, goal: int
    ) -> bool:
        """Change leaders along a way from `start` to `goal`: all, or none if one change is in the way of another."""
        done: list[tuple[_Topic, Changes]] = []
        while goal != start:
            topic = pairs[came[goal]][goal]
            is_lower = topic.led[goal] < topic.led[came[goal]]
            changes = topic.path(came[goal], {goal}) if is_lower else []
            if not changes:
                for other, undone in reversed(done):
                    self._apply(other, [(key, new, old) for key, old, new in reversed(undone)])
                return False
            self._apply(topic, changes)
            done.append((topic, changes))
            goal = came[goal]
        return True
