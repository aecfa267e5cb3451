"""One pod as the kubelet keeps it: its container is started, probed, restarted and stopped, and its status reported."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from tests.deploy.container import Container, ends_within
from tests.deploy.kubernetes_api import Object, Refused
from tests.deploy.probes import Probe

if TYPE_CHECKING:
    from tests.deploy.kubelet import Kubelet

PAUSE_S: Final = 0.1
MIN_AFTER_HOOK_S: Final = 2.0
"""The kubelet's own: a container has so long after SIGTERM, even if its hook took the whole grace period."""


class PodWorker:
    """A pod that is bound to a machine, with a thread of its own."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        self._kubelet, self._pod = kubelet, pod
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._uid = pod["metadata"]["uid"]
        (self._spec,) = pod["spec"]["containers"]
        self._grace_s = 0.0
        self._deleted, self._closed = Event(), Event()
        self._ready = self._started = False
        self._restarts = 0
        self._began = _now()
        self._conditions: dict[str, tuple[bool, str]] = {}
        """The status of each condition, and since when it has it."""
        self._probes: dict[str, Probe] = {}
        self.container: Container | None = None
        self._thread = Thread(target=self._run, name=self.name)
        self._thread.start()

    def delete(self, grace_s: float) -> None:
        """Let the pod end: it has been deleted, with a grace period."""
        self._grace_s = grace_s
        self._deleted.set()

    def close(self) -> None:
        """Kill the container at once, and wait for the thread."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        host = self._kubelet.take_host()
        try:
            self._address = self._kubelet.network.addresses[host].host
            self.container = self._kubelet.make_container(self._pod, self._kubelet.network.hosts[host])
            while not (self._deleted.is_set() or self._closed.is_set()):
                self._live()
            self._leave()
        except Exception as error:  # the test has to know
            self._kubelet.failures.append(error)
        finally:
            if self.container is not None:
                self.container.kill()
            self._kubelet.give_back(host)

    def _live(self) -> None:
        """Run the container until a probe says that it has to end, or the pod is deleted."""
        container = self._running
        container.start()
        self._note("started")
        kinds = [each for each in ("startup", "liveness", "readiness") if f"{each}Probe" in self._spec]
        self._probes = {each: Probe(each, self._spec, self._address) for each in kinds}
        self._started, self._ready = "startup" not in self._probes, "readiness" not in self._probes
        self._report()
        stopped = False
        while not (stopped or self._closed.is_set()):
            if self._deleted.is_set():
                self._stop(self._grace_s)
                stopped = True
            elif failed := self._failed_probe():
                self._note(f"{failed} failed")
                own = self._probes[failed].spec.get("terminationGracePeriodSeconds")
                self._stop(self._pod["spec"]["terminationGracePeriodSeconds"] if own is None else own)
                stopped = True
            elif container.ends_within(PAUSE_S):
                raise RuntimeError(f"{self.name} ended by itself: {container.log_tail()}")
            else:
                self._probe_readiness()
        container.kill()
        self._note(f"ended with {container.exit_code}")
        self._restarts += 1
        self._started = self._ready = False
        self._report()

    @property
    def _running(self) -> Container:
        assert self.container is not None
        return self.container

    @property
    def liveness_failures(self) -> int:
        """How often the liveness probe has failed since the container was started."""
        probe = self._probes.get("liveness")
        return 0 if probe is None else probe.failures

    def _failed_probe(self) -> str | None:
        """Return the name of a probe that has failed for good. Others wait for the startup probe."""
        name = "liveness" if self._started else "startup"
        if name not in self._probes:
            return None
        verdict = self._probes[name].ask_if_due()
        if verdict and not self._started:
            self._started = True
            self._report()
        return name if verdict is False else None

    def _probe_readiness(self) -> None:
        """Ask, also while the pod ends, and report a change."""
        probe = self._probes.get("readiness")
        verdict = probe.ask_if_due() if probe is not None and self._started else None
        if verdict is not None and verdict != self._ready:
            self._ready = verdict
            self._note("ready" if verdict else "unready")
            self._report()

    def _stop(self, grace_s: float) -> None:
        """Run the preStop hook, send SIGTERM, and SIGKILL after the grace period, which covers the hook."""
        deadline = time.monotonic() + grace_s
        container = self._running
        if command := self._spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command"):
            hook = container.execute(command)
            self._note("preStop began")
            if not self._wait(lambda: ends_within(hook, PAUSE_S), deadline):
                hook.kill()
            said, _ = hook.communicate()
            self._note(f"preStop ended with {hook.returncode}", said)
        self._note("SIGTERM")
        container.signal(signal.SIGTERM)
        deadline = max(deadline, time.monotonic() + MIN_AFTER_HOOK_S)
        if not self._wait(lambda: container.ends_within(PAUSE_S), deadline):
            self._note("SIGKILL")
            container.kill()

    def _wait(self, ended: Callable[[], bool], deadline: float) -> bool:
        """Go on asking for readiness until something has ended or the deadline is past; returns whether it has."""
        while not ended():
            if time.monotonic() >= deadline or self._closed.is_set():
                return False
            self._probe_readiness()
        return True

    def _leave(self) -> None:
        """Remove the pod from the API, which the kubelet does once its container has ended."""
        if self._closed.is_set():
            return
        gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        try:
            self._kubelet.api.ask("DELETE", self._path, gone)
        except Refused as refused:
            if refused.code not in (404, 409):
                raise

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def _note(self, what: str, said: str = "") -> None:
        self._kubelet.note(self.name, what, said)

    def _report(self) -> None:
        """Write the pod's status."""
        if self._closed.is_set():
            return
        running = self._running.running
        code = self._running.exit_code
        state = {
            "running": {"startedAt": _now()} if running else None,
            "terminated": None if running else {"exitCode": code, "finishedAt": _now()},
        }
        container = {
            "name": self._spec["name"],
            "image": self._spec["image"],
            "imageID": "",
            "ready": self._ready,
            "started": self._started,
            "restartCount": self._restarts,
            "state": state,
        }
        status = {
            "phase": "Running",
            "hostIP": self._address,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "startTime": self._began,
            "containerStatuses": [container],
            "conditions": [
                self._condition("Initialized", True),
                self._condition("ContainersReady", self._ready),
                self._condition("Ready", self._ready),
            ],
        }
        try:
            self._kubelet.api.patch(
                f"{self._path}/status", {"metadata": {"uid": self._uid}, "status": status}
            )
        except Refused as refused:
            if refused.code not in (404, 409):
                raise

    def _condition(self, name: str, holds: bool) -> Object:
        if self._conditions.get(name, (None, ""))[0] != holds:
            self._conditions[name] = (holds, _now())
        return {"type": name, "status": str(holds), "lastTransitionTime": self._conditions[name][1]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
