"""`raftlog cluster restart`: restart the nodes one after the other, each only when it is safe.

The followers of the metadata quorum come first, then brokers that do not vote, and the quorum's leader last. A node is
drained, awaited until its restart is safe, restarted by the operator's command, awaited until it has caught up, and
undrained. An interrupted run is resumed by the time at which it began: nodes that started later are left alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.node import line_of, not_caught_up, risks_of, wait_until


@dataclass(slots=True)
class RollingRestart:
    """One run. `api`: any node's HTTP API; `command`: a line for the shell, {id} stands for the node's number."""

    api: HttpApi
    command: str
    margin: int
    wait_s: float
    since_ms: int
    _apis: dict[int, HttpApi] = field(default_factory=dict)
    """Of each broker."""
    _done: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Restart each broker that did not start since. Raise Failure, and say how to resume, where one is not safe."""
        self._find_nodes()
        if len(self._apis) > 1 and "{id}" not in self.command:
            raise Failure("--each: say {id} where the node's number belongs", exits.USAGE)
        try:
            while left := self._left():
                self._restart(left[0])
        except Failure as failure:
            raise Failure(
                f"{failure}; the others are not restarted. To resume: --since {self.since_ms}",
                failure.code,
                details=failure.details,
            ) from None

    def plan(self) -> list[dict[str, Any]]:
        """Return the brokers in their order, each with what stands against its restart now, and what it brings."""
        self._find_nodes()
        rows = []
        for node_id in self._left():
            found = self._ask_others(
                node_id, "GET", f"{self._path(node_id)}/restart-risks?margin={self.margin}"
            )
            blocking, notes = ([line_of(each) for each in found[name]] for name in ("blocking", "notes"))
            rows.append({"node": node_id, "safe": found["safe"], "blocking": blocking, "notes": notes})
        return rows

    def _find_nodes(self) -> None:
        found = self.api.ask("GET", "/v1/nodes")["data"]
        silent = [str(each["broker_id"]) for each in found if each["http_url"] is None]
        if silent:
            raise Failure(
                f"no HTTP API of broker {', '.join(silent)} can be reached from here: it is down, or has none",
                exits.UNREACHABLE,
            )
        self._apis = {each["broker_id"]: replace(self.api, url=each["http_url"]) for each in found}

    def _left(self) -> list[int]:
        """Return the brokers that are to be restarted, in order."""
        quorum = self.api_of_any().ask("GET", "/v1/quorum")
        voters = {each["node_id"] for each in quorum["voters"]}
        left = [each for each in self._apis.keys() - self._done if self._started_ms(each) < self.since_ms]
        return sorted(left, key=lambda each: (each == quorum["leader_id"], each not in voters, each))

    def _restart(self, node_id: int) -> None:
        prefix = f"node {node_id}: "
        with self._drained(node_id):
            wait_until(lambda: self._risks(node_id), self.wait_s, prefix)
            _say(f"{prefix}restarting")
            before_ms = self._started_ms(node_id)
            command = self.command.replace("{id}", str(node_id))
            code = subprocess.run(command, shell=True, check=False).returncode  # noqa: S602 - the operator's own line
            if code:
                raise Failure(f"{prefix}{command!r} ended with exit code {code}")
            wait_until(lambda: self._not_back(node_id, before_ms), self.wait_s, prefix)
        self._done.add(node_id)
        _say(f"{prefix}caught up")

    @contextmanager
    def _drained(self, node_id: int) -> Iterator[None]:
        """Have a broker lead nothing meanwhile. One that an operator drained stays so."""
        path = f"{self._path(node_id)}/drain"
        if self._ask_others(node_id, "GET", path)["draining"]:
            yield
            return
        self._ask_others(node_id, "POST", path)
        try:
            yield
        finally:
            try:
                self._ask_others(node_id, "DELETE", path)
            except Failure as failure:
                _say(f"node {node_id}: still drained, see raftlog broker drain --undo: {failure}")

    def _risks(self, node_id: int) -> list[str]:
        try:
            return risks_of(
                self.api_of_any(besides=node_id), f"{self._path(node_id)}/restart-risks", self.margin
            )
        except Failure as failure:
            return [str(failure)]

    def _not_back(self, node_id: int, before_ms: int) -> list[str]:
        """Return why a node is not back: it does not answer, still runs since `before_ms`, or lags."""
        try:
            if self._started_ms(node_id) == before_ms:
                return ["it has not been restarted yet"]
            return not_caught_up(self._apis[node_id])
        except Failure as failure:
            if failure.code != exits.UNREACHABLE:
                raise
            return ["it does not answer"]

    def _started_ms(self, node_id: int) -> int:
        return int(self._apis[node_id].ask("GET", "/v1/live")["started_ms"])

    def _ask_others(self, node_id: int, method: str, path: str) -> Any:
        return self.api_of_any(besides=node_id).ask(method, path)

    def api_of_any(self, besides: int | None = None) -> HttpApi:
        """Return the API of a node that answers, another one if there is one. Raise Failure if none does."""
        reason = None
        for node_id in sorted(self._apis, key=lambda each: each == besides):
            try:
                self._apis[node_id].ask("GET", "/v1/live")
            except Failure as failure:
                reason = reason or failure
            else:
                return self._apis[node_id]
        raise reason or Failure("there are no brokers", exits.NOT_FOUND)

    def _path(self, node_id: int) -> str:
        return f"/v1/brokers/{node_id}"


def now_ms() -> int:
    return int(time.time() * 1000)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
