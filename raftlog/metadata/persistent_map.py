"""A persistent mapping, which shares unchanged parts with its former version: a hash trie (a HAMT, as Clojure's maps).

A change of one entry copies the nodes on its path, about a hundred references in a map of any size. The difference of
two versions costs what differs. Up to LEAF_MOST entries it is one dict, in the order of insertion. Beyond that it is
ordered by hashes that do not depend on the process, so that a simulation stays deterministic.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Final, Generic, TypeVar, overload
from zlib import crc32

Key = TypeVar("Key")
Value = TypeVar("Value")
Default = TypeVar("Default")

LEAF_MOST: Final = 64
"""Entries of one leaf; a larger leaf is split."""
FANOUT_BITS: Final = 5
FANOUT: Final = 1 << FANOUT_BITS
MERGED_BELOW: Final = LEAF_MOST // 4
"""Entries below which the leaves of one node become one leaf again."""
HASH_BITS: Final = 32

REMOVED: Final[Any] = object()
"""The value, among changes, of a key to remove."""

_Leaf = dict[Any, Any]
_Node = Any
"""A leaf, or a tuple of FANOUT nodes."""


class PersistentMap(Mapping[Key, Value], Generic[Key, Value]):
    """An immutable mapping; `updated` returns a changed copy."""

    __slots__ = ("_count", "_root")

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        self._root: _Node = {}
        self._count = 0
        if entries:
            self._root, self._count = _updated(self._root, entries, 0)

    def updated(self, changes: Mapping[Key, Value]) -> PersistentMap[Key, Value]:
        """Return the map after `changes`; the value REMOVED removes a key, which may be missing."""
        if not changes:
            return self
        after: PersistentMap[Key, Value] = PersistentMap()
        after._root, more = _updated(self._root, changes, 0)
        after._count = self._count + more
        return after

    def __getitem__(self, key: Key) -> Value:
        return _leaf_of(self._root, key)[key]  # type: ignore[no-any-return]

    @overload
    def get(self, key: Key, /) -> Value | None: ...
    @overload
    def get(self, key: Key, /, default: Value | Default) -> Value | Default: ...
    def get(self, key: Key, /, default: Any = None) -> Any:
        return _leaf_of(self._root, key).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in _leaf_of(self._root, key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        for leaf in _leaves(self._root):
            yield from leaf

    def items(self) -> ItemsView[Key, Value]:
        """Return all entries; O(entries) before the first is returned, unless they are few."""
        return _flat(self._root).items()

    def values(self) -> ValuesView[Value]:
        """Return all values, likewise."""
        return _flat(self._root).values()

    def __repr__(self) -> str:
        return f"PersistentMap({_flat(self._root)!r})"


def persistent(entries: Mapping[Key, Value]) -> PersistentMap[Key, Value]:
    """Return a mapping as a PersistentMap; O(1) if it is a PersistentMap."""
    return entries if isinstance(entries, PersistentMap) else PersistentMap(entries)


def changed_keys(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> Iterator[Key]:
    """Yield each key that is only in `old` or `new`, or has a different value object; O(difference) of shared maps."""
    yield from _changed(_root_of(old), _root_of(new))


def _root_of(entries: Mapping[Any, Any]) -> _Node:
    return entries._root if isinstance(entries, PersistentMap) else entries


def _changed(old: _Node, new: _Node) -> Iterator[Any]:
    if old is new:
        return
    if type(old) is tuple and type(new) is tuple:
        for before, after in zip(old, new, strict=True):
            if before is not after:
                yield from _changed(before, after)
        return
    was, now = _flat(old), _flat(new)
    for key, value in now.items():
        if was.get(key, REMOVED) is not value:
            yield key
    for key in was:
        if key not in now:
            yield key


def _code(key: object) -> int:
    text = key if type(key) is str else repr(key)
    return crc32(text.encode("utf-8", "surrogatepass"))


def _leaf_of(node: _Node, key: object) -> _Leaf:
    """Return the leaf that has the key if any has."""
    if type(node) is tuple:
        code = _code(key)
        while type(node) is tuple:
            node = node[code % FANOUT]
            code >>= FANOUT_BITS
    return node  # type: ignore[no-any-return]


def _leaves(node: _Node) -> Iterator[_Leaf]:
    if type(node) is tuple:
        for child in node:
            yield from _leaves(child)
    else:
        yield node


def _flat(node: _Node) -> _Leaf:
    if type(node) is not tuple:
        return node  # type: ignore[no-any-return]
    entries: _Leaf = {}
    for leaf in _leaves(node):
        entries.update(leaf)
    return entries


def _updated(node: _Node, changes: Mapping[Any, Any], shift: int) -> tuple[_Node, int]:
    """Return the changed node, and by how many entries it grew. `shift`: bits of hashes used above it."""
    if type(node) is not tuple:
        leaf = dict(node)
        for key, value in changes.items():
            if value is REMOVED:
                leaf.pop(key, None)
            else:
                leaf[key] = value
        return _split(leaf, shift), len(leaf) - len(node)
    children, more = list(node), 0
    for slot, part in _by_slot(changes, shift).items():
        children[slot], added = _updated(children[slot], part, shift + FANOUT_BITS)
        more += added
    return _merged(children) if more < 0 else tuple(children), more


def _split(leaf: _Leaf, shift: int) -> _Node:
    if len(leaf) <= LEAF_MOST or shift >= HASH_BITS:
        return leaf
    parts = _by_slot(leaf, shift)
    return tuple(_split(parts.get(slot, {}), shift + FANOUT_BITS) for slot in range(FANOUT))


def _by_slot(entries: Mapping[Any, Any], shift: int) -> dict[int, _Leaf]:
    parts: dict[int, _Leaf] = {}
    for key, value in entries.items():
        parts.setdefault((_code(key) >> shift) % FANOUT, {})[key] = value
    return parts


def _merged(children: list[_Node]) -> _Node:
    """Return one leaf for children that hold little, else the node."""
    if all(type(child) is dict for child in children) and sum(map(len, children)) < MERGED_BELOW:
        return {key: value for child in children for key, value in child.items()}
    return tuple(children)
