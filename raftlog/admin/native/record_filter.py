"""The texts that a record must contain to be found by a search: in its key, its value, a header, or any of them.

Letters of ASCII match in either case. A text is looked for in the bytes, and then in what a decoder makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from raftlog.admin.native.record_contents import Contents
from raftlog.records.batch import Record, name_bytes
from raftlog.schemas.payloads import SCHEMA_HEADERS

Text = Annotated[str, msgspec.Meta(max_length=200)]


class Texts(NamedTuple):
    """The texts of a query; "" matches every record."""

    key: str
    value: str
    header: str
    anywhere: str


def _in_key(text: bytes, record: Record) -> bool:
    return record.key is not None and text in record.key.lower()


def _in_value(text: bytes, record: Record) -> bool:
    return record.value is not None and text in record.value.lower()


def _in_headers(text: bytes, record: Record) -> bool:
    return any(
        text in (b"%b=%b" % (name_bytes(name), value or b"")).lower() for name, value in record.headers
    )


def _anywhere(text: bytes, record: Record) -> bool:
    return _in_key(text, record) or _in_value(text, record) or _in_headers(text, record)


class _Wanted(NamedTuple):
    text: bytes
    is_in: Callable[[bytes, Record], bool]
    of_key: bool
    of_value: bool
    """Whether the text may be in the decoded key or value."""


class Filter:
    """Says which records of a search match."""

    def __init__(self, texts: Texts) -> None:
        every = (
            _Wanted(texts.key.encode().lower(), _in_key, of_key=True, of_value=False),
            _Wanted(texts.value.encode().lower(), _in_value, of_key=False, of_value=True),
            _Wanted(texts.header.encode().lower(), _in_headers, of_key=False, of_value=False),
            _Wanted(texts.anywhere.encode().lower(), _anywhere, of_key=True, of_value=True),
        )
        self._wanted = [each for each in every if each.text]

    def missing(self, record: Record) -> list[_Wanted]:
        """Return the texts that are not in the bytes of a record."""
        return [each for each in self._wanted if not each.is_in(each.text, record)]


async def are_decoded(missing: Sequence[_Wanted], record: Record, contents: Contents) -> bool:
    """Return whether the texts that the bytes lack are all in the decoded key or value."""
    for each in missing:
        if not await _is_in_decoded(each, record, contents):
            return False
    return True


async def _is_in_decoded(wanted: _Wanted, record: Record, contents: Contents) -> bool:
    """Return whether a key or a value has the text once it is decoded."""
    choices = contents.choices
    for name, is_asked, data, choice in (
        ("key", wanted.of_key, record.key, choices.key),
        ("value", wanted.of_value, record.value, choices.value),
    ):
        if not is_asked or data is None:
            continue
        prefix = next((value for header, value in record.headers if header == SCHEMA_HEADERS[name]), None)
        if not contents.changes(data, choice, prefix):
            continue
        content = await contents.content(data, choice, prefix)
        if content is not None and wanted.text in content.data.encode().lower():
            return True
    return False
