"""The addresses of the voters as a node without a metadata log last knew them, in a small file beside its records.

The list of its config may be older than the voters: they all may have been replaced while the node was down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.base.checked_files import read_checked, write_checked
from raftlog.base.config.network import format_voters, parse_voters
from raftlog.base.disk import Disk
from raftlog.base.log import get_logger

FILE: Final = "known-voters"

log = get_logger("quorum")


class KnownVoters:
    """The file in a folder. It has the form of controller.quorum.voters."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE}"
        self._written: Mapping[int, tuple[str, int]] | None = None

    def read(self) -> dict[int, tuple[str, int]]:
        """Return the voters; none if there is no file, or it is damaged. Raises OSError."""
        content = read_checked(self._disk, self._path)
        found: Mapping[int, tuple[str, int]] = {}
        try:
            found = {} if content is None else parse_voters(content.decode())
        except ValueError as error:  # an address that no config may have
            log.warning("known_voters_unreadable", path=self._path, reason=str(error))
        self._written = found
        return dict(found)

    def write(self, voters: Mapping[int, tuple[str, int]]) -> None:
        """Replace the file durably if it has other voters. A failure is logged: the node serves without it."""
        if voters == self._written:
            return
        self._written = dict(voters)
        try:
            write_checked(self._disk, self._path, format_voters(voters).encode())
        except OSError as error:
            log.warning("known_voters_not_written", path=self._path, reason=error.strerror or str(error))
