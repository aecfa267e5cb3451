"""Text that others chose (group ids, client ids, member ids), made fit for a terminal: it may draw, not command."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return it with what is no visible character, nor a space, written as an escape, as `\\x1b`; JSON has its own."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
