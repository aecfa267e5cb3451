"""`raftlog cluster restart`: restart the brokers one after the other, each only when it is safe.

The followers of the metadata quorum come first, then brokers that do not vote, and the quorum's leader last. Each is
drained, restarted by the operator's command once that is safe, and undrained when it has caught up. A run that stops
says which brokers it has restarted, and another run skips these.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from raftlog.cli import exits
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.node import line_of, not_caught_up, risks_of, wait_until

ID = "{id}"


@dataclass(slots=True)
class RollingRestart:
    """A rolling restart. In `command`, a line for the shell, and in `node_http`, {id} stands for a node's number."""

    api: HttpApi
    """Any node's."""
    command: str
    node_http: str
    """Where a node's HTTP API is; "" for the address that the node names."""
    margin: int
    wait_s: float
    done: set[int]
    """The brokers to skip, and the brokers that have been restarted since."""
    _apis: dict[int, HttpApi] = field(default_factory=dict)
    """Of each broker."""

    def run(self) -> int:
        """Restart the brokers; return the exit code. Raise Failure, which says how to resume."""
        self._find_nodes()
        if len(self._apis) > 1 and ID not in self.command:
            raise Failure("--each: must contain {id}, which stands for the node's id", exits.USAGE)
        with ended_by_signals():
            try:
                while self._apis.keys() - self.done:
                    self._restart(self._next())
            except Failure as failure:
                text = f"{failure}; {self._how_to_resume()}"
                raise Failure(text, failure.code, details=failure.details) from None
            except KeyboardInterrupt:
                _say(f"interrupted; {self._how_to_resume()}")
                return exits.INTERRUPTED
        return exits.OK

    def plan(self) -> list[dict[str, Any]]:
        """Return the brokers in their order, each with its blocking risks and notes now."""
        self._find_nodes()
        rows = []
        for node_id in self._in_order(self._apis.keys() - self.done):
            path = f"/v1/brokers/{node_id}/restart-risks?margin={self.margin}"
            found = self._another(node_id).ask("GET", path)
            blocking, notes = ([line_of(each) for each in found[name]] for name in ("blocking", "notes"))
            rows.append({"node": node_id, "safe": found["safe"], "blocking": blocking, "notes": notes})
        return rows

    def _find_nodes(self) -> None:
        for each in self.api.ask("GET", "/v1/nodes")["data"]:
            node_id, url = each["broker_id"], each["http_url"]
            if self.node_http:
                url = self.node_http.replace(ID, str(node_id))
            if url is None:
                raise Failure(
                    f"broker {node_id} is down, or its HTTP API is unreachable from here: set --node-http",
                    exits.UNREACHABLE,
                )
            if self.api.url.startswith("https:") and not url.startswith("https:"):
                raise Failure(
                    f"the HTTP API of broker {node_id} at {url} is not HTTPS, but {self.api.url} is"
                )
            self._apis[node_id] = replace(self.api, url=url)
        if unknown := self.done - self._apis.keys():
            raise Failure(f"--skip: there is no broker {min(unknown)}", exits.NOT_FOUND)

    def _how_to_resume(self) -> str:
        if not self.done:
            return "no broker has been restarted"
        return f"the others are not restarted. To resume: --skip {','.join(map(str, sorted(self.done)))}"

    def _next(self) -> int:
        """Return the next broker, once the quorum's leader is known. Raise Failure."""
        self._wait(self._leaderless, "")
        return self._in_order(self._apis.keys() - self.done)[0]

    def _in_order(self, left: Collection[int]) -> list[int]:
        quorum = self._another(None).ask("GET", "/v1/quorum")
        voters = {each["node_id"] for each in quorum["voters"]}
        return sorted(left, key=lambda each: (each == quorum["leader_id"], each not in voters, each))

    def _restart(self, node_id: int) -> None:
        prefix = f"node {node_id}: "
        with self._drained(node_id):
            self._wait(partial(self._risks, node_id), prefix)
            before_ms = self._started_ms(node_id)
            _say(f"{prefix}restarting")
            self._run(self.command.replace(ID, str(node_id)), prefix)
            self.done.add(node_id)
            self._wait(partial(self._not_back, node_id, before_ms), prefix)
        _say(f"{prefix}caught up")

    def _run(self, command: str, prefix: str) -> None:
        try:  # in a session of its own, so that Ctrl-C does not end it half-way
            ran = subprocess.run(  # noqa: S602 - the operator's own line
                command, shell=True, check=False, timeout=self.wait_s or None, start_new_session=True
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{prefix}{command!r} has not ended after {self.wait_s:g} s") from None
        if ran.returncode:
            raise Failure(f"{prefix}{command!r} ended with exit code {ran.returncode}")

    @contextmanager
    def _drained(self, node_id: int) -> Iterator[None]:
        """Have a broker lead no partition meanwhile. One that an operator drained stays drained."""
        path = f"/v1/brokers/{node_id}/drain"
        if self._another(node_id).ask("GET", path)["draining"]:
            yield
            return
        try:
            self._another(node_id).ask("POST", path)
            yield
        finally:
            self._wait(partial(self._undrain, node_id, path), f"node {node_id}, which is drained: ")

    def _wait(self, reasons: Callable[[], Sequence[str]], prefix: str) -> None:
        """Block until there are no reasons to wait; that no node answers is one. Raise Failure."""

        def retried() -> Sequence[str]:
            try:
                return reasons()
            except Failure as failure:
                if failure.code != exits.UNREACHABLE:
                    raise
                return [str(failure)]

        wait_until(retried, self.wait_s, prefix)

    # Reasons to wait.

    def _leaderless(self) -> list[str]:
        is_led = self._another(None).ask("GET", "/v1/quorum")["told_by_leader"]
        return [] if is_led else ["no active controller answers"]

    def _risks(self, node_id: int) -> list[str]:
        return risks_of(self._another(node_id), f"/v1/brokers/{node_id}/restart-risks", self.margin)

    def _not_back(self, node_id: int, before_ms: int) -> list[str]:
        if self._started_ms(node_id) == before_ms:
            return ["it has not been restarted yet"]
        return not_caught_up(self._apis[node_id])

    def _undrain(self, node_id: int, path: str) -> list[str]:
        self._another(node_id).ask("DELETE", path)
        return []

    # Nodes.

    def _started_ms(self, node_id: int) -> int:
        return int(self._apis[node_id].ask("GET", "/v1/live")["started_ms"])

    def _another(self, node_id: int | None) -> HttpApi:
        """Return the API of a broker that answers, if possible of another than this one. Raise Failure."""
        reason = Failure("there are no brokers", exits.NOT_FOUND)
        for each in sorted(self._apis, key=lambda each: each == node_id):
            try:
                self._started_ms(each)
            except Failure as failure:
                reason = failure
            else:
                return self._apis[each]
        raise reason


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
