"""A persistent map is a dict of which every version stays, and versions share what is equal."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.metadata.persistent_map import FANOUT, LEAF_MOST, REMOVED, PersistentMap, changed_keys

MANY = 20 * LEAF_MOST

changes = st.dictionaries(
    st.integers(0, 3 * LEAF_MOST), st.one_of(st.integers(), st.just(REMOVED)), max_size=150
)


def of(count: int) -> PersistentMap[str, int]:
    return PersistentMap({f"topic-{number}": number for number in range(count)})


@given(st.lists(changes, max_size=6))
def test_it_equals_the_dict_that_saw_the_same_changes(steps: list[dict[int, int]]) -> None:
    """After any changes, each version has its entries, length and membership; earlier versions keep theirs."""
    expected: dict[str, int] = {}
    versions: list[tuple[PersistentMap[str, int], dict[str, int]]] = [(PersistentMap(), {})]
    for step in steps:
        named = {str(key): value for key, value in step.items()}
        expected = {key: value for key, value in {**expected, **named}.items() if value is not REMOVED}
        versions.append((versions[-1][0].updated(named), expected))
    for version, entries in versions:
        assert version == entries
        assert len(version) == len(list(version)) == len(entries)
        assert all(
            version[key] == version.get(key) == value and key in version for key, value in entries.items()
        )
        assert "none" not in version and version.get("none", 7) == 7
        with pytest.raises(KeyError):
            version["none"]


@given(changes, changes)
def test_the_difference_is_what_dicts_say(first: dict[int, int], second: dict[int, int]) -> None:
    """`changed_keys` names each key with another object as its value, or missing on one side, once, both ways."""
    old = PersistentMap({str(key): [value] for key, value in first.items() if value is not REMOVED})
    new = old.updated({str(key): value if value is REMOVED else [value] for key, value in second.items()})
    expected = {key for key in {*old, *new} if old.get(key) is not new.get(key)}
    for found in (list(changed_keys(old, new)), list(changed_keys(new, old))):
        assert set(found) == expected
        assert len(found) == len(expected)


def test_few_entries_stay_in_the_order_of_insertion() -> None:
    """One leaf is one dict."""
    assert list(of(LEAF_MOST)) == [f"topic-{number}" for number in range(LEAF_MOST)]


def test_the_order_of_many_does_not_depend_on_how_they_came() -> None:
    """The order between leaves is by hashes that are the same in every process: simulations replay."""
    one_by_one: PersistentMap[str, int] = PersistentMap()
    for number in range(MANY):
        one_by_one = one_by_one.updated({f"topic-{number}": number})
    assert list(one_by_one) == list(of(MANY))
    assert next(iter(of(MANY))) == "topic-6"


def test_a_change_copies_the_nodes_on_its_way_only() -> None:
    """Of all other subtrees the two versions share the very same objects."""
    before = of(MANY)
    after = before.updated({"topic-5": -1})
    same = [was is now for was, now in zip(before._root, after._root, strict=True)]
    assert same.count(False) == 1
    assert len(same) == FANOUT


def test_a_map_that_shrank_is_one_leaf_again() -> None:
    """Removed topics no longer slow down an iteration."""
    shrunk = of(MANY).updated({f"topic-{number}": REMOVED for number in range(3, MANY)})
    assert shrunk == {"topic-0": 0, "topic-1": 1, "topic-2": 2}
    assert type(shrunk._root) is dict


def test_keys_of_any_kind_are_found() -> None:
    """Topic ids and (resource type, name) pairs are keys too."""
    ids = {UUID(int=number): number for number in range(MANY)}
    pairs = {("topic", str(number)): number for number in range(MANY)}
    by_id, by_pair = PersistentMap(ids), PersistentMap(pairs)
    assert all(by_id[key] == value for key, value in ids.items())
    assert all(by_pair[key] == value for key, value in pairs.items())


def test_equal_versions_differ_in_nothing() -> None:
    """The difference of a version and itself is not even looked for."""
    some = of(MANY)
    assert some.updated({}) is some
    assert list(changed_keys(some, some)) == []
