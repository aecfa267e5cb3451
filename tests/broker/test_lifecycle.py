"""Claims about a broker's life in the cluster, in virtual time, against a scripted controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec
from structlog.testing import capture_logs

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    KafkaError,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from raftlog.broker.lifecycle import Lifecycle, Timing
from raftlog.metadata.broker_requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    RegisterBroker,
)
from raftlog.metadata.controller_api import Reply, Request
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog_chaos.simulator import SimLoop, simulate
from tests.kit.slowness import make_slow


class FakeController:
    """A controller: `register` and `beat` answer, `asked` remembers."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.epochs = 0
        self.image = msgspec.structs.replace(EMPTY_IMAGE, offset=100)
        self.doors_opened_after: list[int] = []
        self.register: Callable[[], Reply] = self.next_epoch
        self.beat: Callable[[BrokerHeartbeat], Reply] = lambda _: BrokerHeartbeatReply(True, False, False)
        self.registrations = 0
        self.lifecycle = Lifecycle(
            registration=self._registration,
            submit=self._submit,
            image=lambda: self.image,
            timing=Timing(heartbeat_s=0.5, shutdown_s=5.0),
        )
        self.lifecycle.start_serving = self._start_serving

    def next_epoch(self) -> Reply:
        self.epochs += 1
        return BrokerRegistration(self.epochs)

    def _registration(self) -> RegisterBroker:
        self.registrations += 1
        return RegisterBroker(1, UUID(int=1), "", ())

    async def _submit(self, request: Request, *, timeout: float | None = None) -> Reply:
        self.asked.append(request)
        return self.beat(request) if isinstance(request, BrokerHeartbeat) else self.register()

    async def _start_serving(self) -> None:
        self.doors_opened_after.append(len(self.asked))

    def beats(self) -> list[BrokerHeartbeat]:
        return [each for each in self.asked if isinstance(each, BrokerHeartbeat)]


def refuse(error: KafkaError) -> Callable[..., Reply]:
    def answer(*_: Any) -> Reply:
        raise error

    return answer


def run_scenario(scenario: Callable[[FakeController, asyncio.Task[None]], Awaitable[Any]]) -> Any:
    async def program(loop: SimLoop) -> Any:
        desk = FakeController()
        task = loop.create_task(desk.lifecycle.run())
        result = await scenario(desk, task)
        task.cancel()
        return result

    return simulate(program).result


def test_heartbeats_carry_the_epoch_of_this_registration() -> None:
    """KIP-631; every broker.heartbeat.interval.ms."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        await desk.lifecycle.unfenced.wait()
        await asyncio.sleep(5)
        assert {(each.broker_id, each.broker_epoch) for each in desk.beats()} == {(1, 1)}
        assert 9 <= len(desk.beats()) <= 11
        assert desk.registrations == 1  # collecting what a broker registers costs twenty calls

    run_scenario(scenario)


def test_the_doors_open_once_the_image_holds_the_registration_and_before_the_first_heartbeat() -> None:
    """An earlier client would see the past: topics that are gone, or not yet the new topics."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        desk.image = msgspec.structs.replace(EMPTY_IMAGE, offset=1)  # all but the registration itself
        await asyncio.sleep(5)
        assert len(desk.asked) == 1 and not desk.doors_opened_after
        desk.image = msgspec.structs.replace(EMPTY_IMAGE, offset=2)
        desk.lifecycle.on_metadata()
        await asyncio.wait_for(desk.lifecycle.unfenced.wait(), 0.1)
        assert desk.doors_opened_after == [1]
        await asyncio.sleep(5)
        assert desk.doors_opened_after == [1]

    run_scenario(scenario)


def test_a_broker_of_a_stale_epoch_registers_anew_and_takes_no_part_meanwhile() -> None:
    """Another incarnation, or an unregistration, ended this epoch."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        await desk.lifecycle.unfenced.wait()
        desk.register = refuse(NotController())
        desk.beat = refuse(StaleBrokerEpoch())
        await asyncio.sleep(1)
        assert not desk.lifecycle.unfenced.is_set() and desk.lifecycle.broker_epoch == -1
        desk.register, desk.beat = desk.next_epoch, lambda _: BrokerHeartbeatReply(True, False, False)
        await desk.lifecycle.unfenced.wait()
        assert desk.lifecycle.broker_epoch == 2

    run_scenario(scenario)


def test_a_refusal_is_said_once_and_tried_until_it_ends() -> None:
    """A second process with this node.id, say: an operator must read it, but not twenty times a second."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        desk.register = refuse(DuplicateBrokerRegistration("broker 1 is already running as another process"))
        with capture_logs() as logs:
            await asyncio.sleep(3)
        told = [each for each in logs if each["event"] == "broker_refused"]
        assert (
            len(told) == 1 and "is already running" in told[0]["reason"] and told[0]["log_level"] == "warning"
        )
        desk.register = desk.next_epoch
        await asyncio.wait_for(desk.lifecycle.unfenced.wait(), 1)

    run_scenario(scenario)


def test_a_missing_controller_is_not_logged_as_a_warning() -> None:
    """It passes by itself, at every failover."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        desk.register = refuse(RequestTimedOut())
        with capture_logs() as logs:
            await asyncio.sleep(3)
        assert not [each for each in logs if each["log_level"] == "warning"]

    run_scenario(scenario)


def test_a_foreign_cluster_ends_the_broker() -> None:
    """Its data does not belong there."""

    async def scenario(desk: FakeController, task: asyncio.Task[None]) -> None:
        desk.register = refuse(InconsistentClusterId("broker 1 belongs to cluster x, this is y"))
        await asyncio.wait_for(task, 1)
        assert isinstance(desk.lifecycle.fatal, InconsistentClusterId)

    run_scenario(scenario)


def test_a_broker_that_cannot_register_in_time_gives_up_and_says_why() -> None:
    """initial.broker.registration.timeout.ms: the operator sees that the node never came up."""

    async def scenario(desk: FakeController, task: asyncio.Task[None]) -> None:
        time = asyncio.get_running_loop().time
        desk.register = refuse(DuplicateBrokerRegistration("another broker 1 is alive"))
        began_at = time()
        await asyncio.wait_for(task, 120)
        assert 60 <= time() - began_at < 61
        assert "initial.broker.registration.timeout.ms" in str(desk.lifecycle.fatal)
        assert "another broker 1 is alive" in str(desk.lifecycle.fatal)

    run_scenario(scenario)


def test_a_broker_that_was_registered_once_never_gives_up() -> None:
    """The setting is about the first time: later the controller may be away for long."""

    async def scenario(desk: FakeController, task: asyncio.Task[None]) -> None:
        await desk.lifecycle.unfenced.wait()
        desk.beat = refuse(StaleBrokerEpoch())
        desk.register = refuse(RequestTimedOut())
        await asyncio.sleep(100)
        assert not task.done()
        desk.register = desk.next_epoch

    run_scenario(scenario)


def test_a_broker_says_how_late_its_loop_is_and_waits_for_answers_the_longer() -> None:
    """A heartbeat that was given up closed its connection, by which the controller took the broker for lost."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        waits: list[float | None] = []
        submit = desk.lifecycle._submit

        async def watched(request: Request, *, timeout: float | None = None) -> Reply:
            waits.append(timeout)
            return await submit(request, timeout=timeout)

        desk.lifecycle._submit = watched
        await desk.lifecycle.unfenced.wait()
        make_slow(desk.lifecycle.lateness, 0.9, asyncio.get_running_loop().time())
        before = waits[-1]
        await asyncio.sleep(2)
        assert desk.beats()[-1].late_ms == 900
        assert before is not None and waits[-1] == before + desk.lifecycle.lateness.patience_s

    run_scenario(scenario)


def test_a_broker_asks_for_leave_until_it_may_go() -> None:
    """KIP-631: want_shut_down, until the controller says should_shut_down."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        await desk.lifecycle.unfenced.wait()

        def answer(asked: BrokerHeartbeat) -> Reply:
            return BrokerHeartbeatReply(True, False, sum(each.want_shutdown for each in desk.beats()) >= 3)

        desk.beat = answer
        assert await desk.lifecycle.controlled_shutdown()
        assert sum(each.want_shutdown for each in desk.beats()) == 3

    run_scenario(scenario)


def test_only_a_registered_broker_waits_for_leave_and_only_so_long() -> None:
    """Without a controller a node stops all the same."""

    async def scenario(desk: FakeController, _task: asyncio.Task[None]) -> None:
        time = asyncio.get_running_loop().time
        began_at = time()
        desk.register = desk.beat = refuse(NotController())
        assert not await desk.lifecycle.controlled_shutdown()
        assert time() == began_at
        desk.register = desk.next_epoch
        await asyncio.sleep(1)
        assert not await desk.lifecycle.controlled_shutdown()
        assert 5 <= time() - began_at - 1 < 5.1

    run_scenario(scenario)


def test_a_broker_that_was_unregistered_stays_out_until_it_is_started_anew() -> None:
    """An operator removed it: it takes no part, sends no requests, says so once, and stops at once."""

    async def scenario(desk: FakeController, task: asyncio.Task[None]) -> None:
        await asyncio.sleep(1)
        assert desk.lifecycle.unfenced.is_set()
        desk.beat = refuse(BrokerIdNotRegistered())
        with capture_logs() as logs:
            await asyncio.sleep(1)
            asked = len(desk.asked)
            await asyncio.sleep(60)
        assert [each["event"] for each in logs] == ["broker_unregistered"]
        assert len(desk.asked) == asked
        assert not desk.lifecycle.unfenced.is_set()
        assert not task.done()
        assert not await desk.lifecycle.controlled_shutdown()

    run_scenario(scenario)
