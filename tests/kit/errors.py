"""Expectations of errors by their number or by what they name: their sentences may change."""

from __future__ import annotations

import pytest

from raftlog.base.config import ConfigFaults


def raises_errno(number: int, filename: object = None) -> pytest.RaisesExc[OSError]:
    """Expect an OSError with this number and, if given, this file name."""

    def matches(error: OSError) -> bool:
        return error.errno == number and (filename is None or str(error.filename) == str(filename))

    return pytest.raises(OSError, check=matches)


def raises_faults(*names: str) -> pytest.RaisesExc[ConfigFaults]:
    """Expect a config to be refused because of exactly these settings."""
    return pytest.raises(ConfigFaults, check=lambda error: {each.name for each in error.faults} == {*names})
