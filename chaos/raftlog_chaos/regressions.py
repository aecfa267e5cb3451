"""Seeds in which a scenario finds a bug that is planted. `raftlog sim --regressions` and the tests run them.

A change of the simulator or of a scenario gives every seed another world. So each row names the planted bug of
`tests/planted` that its seed finds, and `python -m tests.planted --regressions` says which rows need another seed.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Regression(NamedTuple):
    """A seed of a scenario, and the planted bug that it finds; sound code passes."""

    scenario: str
    seconds: float
    seed: int
    plant: str


REGRESSIONS: Final = (
    Regression("believed-time", 3.0, 23, "wall-clock-on-the-disk"),
    Regression("blackouts", 3.0, 5, "refused-sync-counts"),
    Regression("clock-jumps", 6.0, 13, "answer-about-an-earlier-clock"),
    Regression("compaction", 6.0, 5, "cleaned-beyond-stable"),
    Regression("consumer-churn", 6.0, 11, "revocations-forgotten"),
    Regression("controller", 6.0, 17, "creation-not-repeatable"),
    Regression("corruption", 3.0, 4, "damage-taken-for-torn-tail"),
    Regression("corruption", 3.0, 173, "recovery-point-beyond-a-cut"),
    Regression("emptied-segments", 4.0, 1, "answers-without-records"),
    Regression("endurance", 3.0, 1, "departed-log-waits"),
    Regression("endurance", 3.0, 6, "metadata-without-sync"),
    Regression("exactly-once", 6.0, 19, "begun-too-early"),
    Regression("exactly-once-alone", 6.0, 2, "owners-fenced"),
    Regression("exactly-once-alone", 6.0, 1, "timed-out-fenced"),
    Regression("exactly-once-alone", 6.0, 1, "made-up-epochs-fence"),
    Regression("exactly-once-alone", 6.0, 1, "made-up-epochs-crowd"),
    Regression("exactly-once-groups", 6.0, 2, "unstable-offsets-told"),
    Regression("fetch-sessions", 3.0, 1, "departed-log-in-session"),
    Regression("fetch-sessions", 3.0, 1, "session-looks-too-early"),
    Regression("first-batches", 3.0, 2, "transactions-begin-anywhere"),
    Regression("first-batches", 3.0, 33, "given-up-batches-awaited"),
    Regression("first-batches", 3.0, 9, "newest-epochs-awaited"),
    Regression("follower-reads", 3.0, 2, "high-watermark-past-the-end"),
    Regression("follower-reads", 3.0, 2, "stable-offset-of-the-leader"),
    Regression("follower-reads", 3.0, 1, "followers-serve-all"),
    Regression("group-churn", 6.0, 9, "static-member-not-fenced"),
    Regression("group-ends", 4.0, 14, "successors-inherit-offsets"),
    Regression("group-migration", 6.0, 6, "upgrades-believe-assignments"),
    Regression("hung-nodes", 4.0, 2, "former-controller-awaited"),
    Regression("hung-nodes", 4.0, 5, "predecessor-suspected-from-zero"),
    Regression("hung-nodes", 4.0, 6, "hung-brokers-forgotten"),
    Regression("jepsen", 3.0, 3, "epochs-before-unknown"),
    Regression("last-replica", 3.0, 12, "fenced-broker-joins"),
    Regression("log-trouble", 4.0, 41, "failed-disk-logged-first"),
    Regression("made-up-producers", 3.0, 4, "followers-forget-others"),
    Regression("names-of-one-log", 4.0, 1, "flushed-taken-for-torn"),
    Regression("names-of-one-log", 4.0, 7, "swap-named-unsynced"),
    Regression("names-of-one-log", 4.0, 25, "former-producers-kept"),
    Regression("names-of-one-log", 4.0, 1, "newest-cut-counts"),
    Regression("names-of-one-log", 4.0, 10, "unwritten-points-count"),
    Regression("out-of-files", 4.0, 8, "no-descriptor-ends-the-voter"),
    Regression("out-of-files", 4.0, 3, "syncs-begin-anew"),
    Regression("pause-kill", 3.0, 7, "shrink-before-answer"),
    Regression("quorum", 6.0, 69, "quorum-torn-tail-read"),
    Regression("quorum-calm", 15.0, 1, "silent-voters-trusted"),
    Regression("relay", 3.0, 17, "join-before-epoch-start"),
    Regression("retry", 3.0, 19, "dedup-window-of-one"),
    Regression("rights", 5.0, 3, "rights-not-in-snapshot"),
    Regression("rolled-back", 4.0, 30, "incarnation-written-late"),
    Regression("rolled-back-unregistered", 3.0, 1, "unregistered-incarnations-forgotten"),
    Regression("rolling-upgrade", 3.0, 5, "stopped-brokers-ignored"),
    Regression("rotten-files", 3.0, 6, "high-watermarks-unchecked"),
    Regression("share-groups", 6.0, 1, "share-answered-uncommitted"),
    Regression("share-groups", 6.0, 1, "share-batches-unread"),
    Regression("share-groups", 6.0, 5, "share-aborted-delivered"),
    Regression("share-groups", 6.0, 5, "share-overlapping-aborted-delivered"),
    Regression("share-groups", 6.0, 2, "share-own-writes-unawaited"),
    Regression("share-groups", 6.0, 2, "share-resets-unseen"),
    Regression("share-groups", 6.0, 2, "share-snapshots-empty"),
    Regression("share-groups", 6.0, 2, "share-hand-answered-unwritten"),
    Regression("share-groups", 6.0, 3, "share-hand-leaves-the-lock"),
    Regression("share-groups", 6.0, 5, "share-hand-without-letters"),
    Regression("share-groups", 6.0, 1, "share-waits-for-removed"),
    Regression("share-groups", 6.0, 2, "share-removed-refused"),
    Regression("share-groups", 6.0, 6, "share-surely-nothing"),
    Regression("schemas", 6.0, 1, "schemas-appended-anywhere"),
    Regression("schemas-truncated", 5.0, 1, "schemas-kept-past-log-start"),
    Regression("share-offsets", 6.0, 2, "share-offsets-set-without-epoch"),
    Regression("transactions", 3.0, 3, "open-lost-on-restart"),
    Regression("transactions-cleaned", 3.0, 4, "markers-left-out"),
    Regression("voters-change", 20.0, 404, "any-link-counts"),
    Regression("wiped", 3.0, 4, "other-disk-trusted"),
    Regression("zombie", 3.0, 2, "ack-on-resigning"),
)
