"""Runs histories on any broker and makes its card.

A broker that ends, or a run that is interrupted, leaves a card of what was seen; the rest is `not run`.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import raftlog
from raftlog.testing.progress import patient
from raftlog_chaos.conformance import recordings
from raftlog_chaos.conformance.brokers import SETTINGS
from raftlog_chaos.conformance.card.cleanup import Cleanup
from raftlog_chaos.conformance.card.guest import ChangesSharedState, GuestSession, Host, HostSession
from raftlog_chaos.conformance.card.judging import REFUSED, UNSUPPORTED, judged, steps_of
from raftlog_chaos.conformance.card.result import GONE, NO_RIGHT, Card, Result, summed
from raftlog_chaos.conformance.card.shared_state import changed_by
from raftlog_chaos.conformance.card.versions import NotServed, as_in_older_versions, versions_of
from raftlog_chaos.conformance.compare import Observation, observe_in
from raftlog_chaos.conformance.history import History
from raftlog_chaos.conformance.session import NotReady

BROKER: Final = 4
"""The type of a config resource."""
GONE_AFTER_S: Final = 5.0
"""A broker that takes no question for so long is gone."""
LOOK_AGAIN_S: Final = 0.5
INTERRUPTED: Final = "interrupted"

Progress = Callable[[Result], None]


class Occupied(Exception):
    """The cluster has topics of its own."""


def host_with_versions(host: Host) -> Host:
    """Ask a broker for its versions. Raises NotReady or OSError."""
    asking = HostSession(host)
    try:
        try:
            answer = asking.query(
                "ApiVersions", 3, client_software_name="raftlog", client_software_version="1"
            )
        except NotReady:
            answer = asking.query("ApiVersions", 0)
        if answer["error_code"] == UNSUPPORTED:
            answer = asking.query("ApiVersions", 0)
        return host._replace(versions=versions_of(answer))
    finally:
        asking.close()


class CardRun:
    """One run over a broker. `results` grows as it goes."""

    def __init__(self, host: Host, histories: Sequence[History], *, name: str, progress: Progress) -> None:
        self._host = host
        self._own = sum(not each.needs.is_any_broker for each in histories)
        self._histories = [each for each in histories if each.needs.is_any_broker]
        self._name = name or ("raftlog" if host.versions.is_raftlog else "the broker")
        self._progress = progress
        self._began = datetime.datetime.now(tz=datetime.UTC)
        self._clock = time.monotonic()
        self._marks: set[str] = set()
        self._created: set[str] = set()
        self._before: frozenset[str] = frozenset()
        self._gone = ""
        self.results: list[Result] = []
        self.notes: list[str] = []
        self.left: list[str] = []

    def begin(self, *, anyway: bool) -> None:
        """Look at the cluster. Raises Occupied if it has other topics, NotReady, OSError."""
        session = GuestSession(self._host)
        try:
            found = session.query("Metadata", 9, topics=None, allow_auto_topic_creation=False)
            own = [each["name"] for each in found["topics"] if not _is_internal(each)]
            if own and not anyway:
                raise Occupied(f"the cluster has topics of its own: {', '.join(own[:3])}{_more(own)}")
            self._before = frozenset(each["name"] for each in found["topics"])
            self._host = self._host._replace(topics=frozenset(own))
            if len(found["brokers"]) > 1:
                self.notes.append(
                    f"The cluster has {len(found['brokers'])} brokers; Kafka's answers are those of one alone."
                )
            self.notes += _settings_that_differ(session, found["brokers"][0]["node_id"])
        finally:
            session.close()

    def run(self) -> None:
        """Run all histories and clean up, also when it is interrupted, which raises KeyboardInterrupt."""
        waiting = list(self._histories)
        try:
            while waiting:
                result = self._one(waiting[0])
                waiting.pop(0)
                self.results.append(result)
                self._progress(result)
        except KeyboardInterrupt:
            self._gone = self._gone or INTERRUPTED
            raise
        finally:
            self.results += [_not_run(each, self._gone or INTERRUPTED) for each in waiting]
            self.left = ["the cleanup was interrupted"]
            self._clean_up()

    def _one(self, history: History) -> Result:
        if self._gone:
            return _not_run(history, self._gone)
        if history.needs.cluster_wide and not self._host.cluster_wide:
            return _not_run(history, "it changes or lists what all clients share")
        recorded = recordings.read(history.subject)["histories"].get(history.name)
        if recorded is None:
            return _not_run(history, "Kafka's answers are not recorded")
        if not self._host.cluster_wide and (what := changed_by(recorded)):
            return _not_run(history, f"it changes {what}")
        began, session = time.monotonic(), GuestSession(self._host)
        self._marks.add(session.mark)
        result = self._asked(history, session, recorded)
        self._created |= session.created
        if result.outcome not in ("kept", "differs, on purpose") and not self._answers():
            self._gone = GONE
            result = _not_run(history, GONE)
        result.seconds = round(time.monotonic() - began, 3)
        return result

    def _asked(self, history: History, session: GuestSession, recorded: Observation) -> Result:
        try:
            seen = observe_in(session, history)
        except ChangesSharedState as error:
            return _not_run(history, str(error))
        except NotServed as error:
            return Result(
                history=history.label, claim=history.claim, outcome="not supported", why=[str(error)]
            )
        except NotReady as error:
            return _not_ready(history, str(error))
        kafka = as_in_older_versions(recorded, session.lowered)
        outcome, why = judged(history.label, kafka, seen, is_raftlog=self._host.versions.is_raftlog)
        return Result(
            history=history.label,
            claim=history.claim,
            outcome=outcome,
            why=why,
            older=list(dict.fromkeys(map(str, session.lowered.values()))),
            steps=[] if outcome == "kept" else steps_of(kafka, seen),
        )

    def _answers(self) -> bool:
        deadline = time.monotonic() + patient(GONE_AFTER_S)
        while True:
            try:
                host_with_versions(self._host)
                return True
            except (OSError, NotReady, LookupError):
                if time.monotonic() > deadline:
                    return False
            time.sleep(LOOK_AGAIN_S)

    def _clean_up(self) -> None:
        if self._gone == GONE:
            self.left = ["whatever the last history made: the broker does not answer"]
            return
        created = frozenset(self._created - self._before)
        self.left = Cleanup(self._host, marks=frozenset(self._marks), created=created).run()

    def card(self) -> Card:
        """Return the card of what was seen so far."""
        subjects = {each.subject for each in self._histories}
        found = [recordings.read(each) for each in sorted(subjects)]
        dates = sorted({each["date"] for each in found if each["date"]})
        card = Card(
            tool=f"raftlog {raftlog.__version__}",
            broker=self._name,
            bootstrap=", ".join(self._host.servers),
            is_raftlog=self._host.versions.is_raftlog,
            kafka=next((each["kafka"] for each in found if each["kafka"]), ""),
            recorded=" to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
            began=self._began.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._clock, 1),
            own=self._own,
            notes=self.notes,
            left=self.left,
            histories=self.results,
        )
        card.subjects = {subject: summed(results) for subject, results in card.by_subject()}
        return card


def _not_run(history: History, why: str) -> Result:
    return Result(history=history.label, claim=history.claim, outcome="not run", why=[why])


def _not_ready(history: History, said: str) -> Result:
    """Return the result of a history that could not begin, because its topic or its coordinator did not come."""
    if any(error in said for error in REFUSED):
        return _not_run(history, f"{NO_RIGHT}{said}")
    outcome = "not supported" if UNSUPPORTED in said else "differs"
    why = f"it could not begin: {said}"
    return Result(history=history.label, claim=history.claim, outcome=outcome, why=[why])  # type: ignore[arg-type]


def _is_internal(topic: dict[str, object]) -> bool:
    return bool(topic.get("is_internal")) or str(topic["name"]).startswith("__")


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 3} more" if len(names) > 3 else ""


def _settings_that_differ(session: GuestSession, node: int) -> Iterator[str]:
    """Yield notes on settings with which Kafka's answers were recorded, and that this broker has otherwise."""
    wanted = {"resource_type": BROKER, "resource_name": str(node), "configuration_keys": list(SETTINGS)}
    try:
        (found,) = session.query("DescribeConfigs", 4, node=node, resources=[wanted])["results"]
    except (NotServed, NotReady, OSError, LookupError, ValueError):
        return
    for each in found["configs"]:
        if each["value"] is not None and each["value"] != SETTINGS.get(each["name"], each["value"]):
            yield (
                f"{each['name']} is {each['value']} here, and was {SETTINGS[each['name']]} where Kafka's answers "
                "were recorded; some histories may differ for that."
            )
