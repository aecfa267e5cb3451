"""franz-go's own tests of share groups, unchanged: ShareFetch 2, acknowledgements at a close, offsets by its admin."""

from __future__ import annotations

import os
import re

import pytest

from raftlog.testing.cluster import Cluster
from tests.interop.member_kinds import BIN
from tests.kit.waits import run

pytestmark = pytest.mark.go

PROGRAM = BIN / "franz-go-tests"
TESTS = ("TestShareGroup", "TestShareGroupAckOnClose", "TestShareGroupETL", "TestShareGroupOffsetsAdmin")
RECORDS = 5_000


def test_franz_go_share_groups_pass_their_own_tests(cluster: Cluster) -> None:
    """Members come, reject, release, vanish and go; every key goes through three topics and two groups."""
    variables = {
        "KGO_SEEDS": cluster.bootstrap_servers,
        "KGO_TEST_RF": "3",
        "KGO_TEST_RECORDS": str(RECORDS),
    }
    ended = run([PROGRAM, "-test.run", "^TestShareGroup", "-test.v"], env=os.environ | variables, text=True)
    passed = re.findall(r"^--- PASS: (\w+)", ended.stdout, re.MULTILINE)
    assert ended.returncode == 0 and set(passed) == set(TESTS), ended.stdout[-8000:]
