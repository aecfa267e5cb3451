"""The simulated loop runs plain asyncio programs, and the same seed runs them the same way."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from raftlog_chaos.simulator import SimEnv, SimLoop, SimulationFailed, SimulationStalled, simulate
from tests.kit.errors import raises_errno


async def echo_server(port: int = 9000) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", port)
    async with server:
        await server.serve_forever()


async def echo(host: str, count: int = 3, port: int = 9000) -> list[bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    answers = []
    for index in range(count):
        writer.write(b"hello %d\n" % index)
        answers.append(await reader.readline())
    writer.close()
    await writer.wait_closed()
    return answers


def test_a_port_that_is_bound_refuses_until_it_serves() -> None:
    """As asyncio's `create_server(start_serving=False)`: the port is taken, and no client gets in."""

    async def program(loop: SimLoop) -> list[str]:
        server, client = loop.host("server"), loop.host("client")
        bound = await server.start(loop.create_server(asyncio.Protocol, "0.0.0.0", 9000, start_serving=False))
        told = []
        for _ in range(2):
            try:
                await client.start(loop.create_connection(asyncio.Protocol, "server", 9000))
                told.append("in")
            except ConnectionRefusedError:
                told.append("refused")
            await bound.start_serving()
        return told

    assert simulate(program).result == ["refused", "in"]


def test_time_is_virtual() -> None:
    """An hour of sleep costs no real time and is measured by loop.time()."""

    async def program(loop: SimLoop) -> float:
        start = loop.time()
        await asyncio.sleep(3_000)
        return loop.time() - start

    assert simulate(program).result == pytest.approx(3_000, abs=0.001)


def test_plain_asyncio_runs_unchanged() -> None:
    """Streams, tasks, groups, events, queues and timeouts behave as documented; executors are refused."""

    async def program(loop: SimLoop) -> list[Any]:
        server, client = loop.host("server"), loop.host("client")
        server.start(echo_server())
        await asyncio.sleep(0.01)
        answers = await client.start(echo("server"))
        event = asyncio.Event()
        loop.call_later(1, event.set)
        await asyncio.wait_for(event.wait(), 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.sleep(60)
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as group:
            for index in range(3):
                group.create_task(queue.put(index))
            taken = [await queue.get() for _ in range(3)]
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(print)
        return [answers, taken]

    assert simulate(program).result == [[b"HELLO 0\n", b"HELLO 1\n", b"HELLO 2\n"], [0, 1, 2]]


class Collector(asyncio.BufferedProtocol):
    """Collects into a small reused buffer; pauses reading by hand."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Writer(asyncio.Protocol):
    """Notes flow control."""

    def __init__(self) -> None:
        self.flow: list[str] = []
        self.lost: list[Exception | None] = []

    def pause_writing(self) -> None:
        self.flow.append("pause")

    def resume_writing(self) -> None:
        self.flow.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


def test_buffered_protocol_gets_every_byte_in_order_and_backpressure_works() -> None:
    """Bytes arrive whole and in order through a 7-byte buffer; a reader that pauses pauses the writer."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        collector = Collector()

        async def listen() -> int:
            server = await loop.create_server(lambda: collector, "a", 0)
            return int(server.sockets[0].getsockname()[1])

        port = await a.start(listen())
        transport, writer = await b.start(loop.create_connection(Writer, "a", port))
        await asyncio.sleep(0.1)
        assert isinstance(writer, Writer)
        assert transport.get_extra_info("peername") == (a.address, port)
        collector.transport.pause_reading()
        payload = bytes(range(256)) * 4_000
        transport.write(payload)
        await asyncio.sleep(1)
        assert (writer.flow, collector.received) == (["pause"], b"")
        collector.transport.resume_reading()
        await asyncio.sleep(1)
        assert writer.flow == ["pause", "resume"]
        transport.close()
        await asyncio.sleep(1)
        assert collector.received == payload
        assert (writer.lost, collector.lost) == ([None], [None])

    simulate(program, seed=5)


def test_a_reader_that_pauses_in_the_midst_of_a_segment_gets_the_rest_later() -> None:
    """A paused transport calls no protocol; the kernel keeps the bytes that it had received with the same packet."""

    class Sipper(Collector):
        """Pauses after each few bytes."""

        def buffer_updated(self, count: int) -> None:
            super().buffer_updated(count)
            self.transport.pause_reading()

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        sipper = Sipper()

        async def listen() -> int:
            server = await loop.create_server(lambda: sipper, "a", 0)
            return int(server.sockets[0].getsockname()[1])

        port = await a.start(listen())
        transport, _ = await b.start(loop.create_connection(Writer, "a", port))
        transport.write(bytes(range(20)))
        await asyncio.sleep(1)
        heard = [len(sipper.received)]
        while heard[-1] < 20:
            sipper.transport.resume_reading()
            await asyncio.sleep(1)
            heard.append(len(sipper.received))
        assert all(0 < after - before <= 7 for before, after in pairwise([0, *heard]))
        assert sipper.received == bytes(range(20))

    simulate(program, seed=5)


def test_a_crash_is_kill_9() -> None:
    """No code of a crashed process runs again, not even `finally`; peers are reset; it can restart."""
    ran: list[str] = []

    async def node(name: str) -> None:
        try:
            await echo_server()
        finally:
            ran.append(name)

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        a.start(node("first"))
        await asyncio.sleep(0.01)
        reader, _ = await b.start(asyncio.open_connection("a", 9000))
        loop.crash(a)
        with pytest.raises(ConnectionResetError):
            await b.start(reader.read())
        with pytest.raises(ConnectionRefusedError):
            await b.start(echo("a"))
        assert ran == []
        a.start(echo_server())
        await asyncio.sleep(0.01)
        assert len(await b.start(echo("a"))) == 3

    simulate(program)


def test_a_silent_crash_is_noticed_only_by_timeouts_until_the_restart() -> None:
    """A pulled plug sends no reset; connecting times out; the restarted machine resets old connections."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        a.start(echo_server())
        await asyncio.sleep(0.01)
        reader, writer = await b.start(asyncio.open_connection("a", 9000))
        loop.crash(a, silent=True)
        b.call(writer.write, b"anyone?\n")
        pending = b.start(reader.read())
        with pytest.raises(OSError):
            await b.start(echo("a"))
        await asyncio.sleep(100)
        assert not pending.done()
        a.start(echo_server())
        with pytest.raises(ConnectionResetError):
            await pending

    simulate(program)


def test_a_paused_host_is_silent_but_its_kernel_accepts() -> None:
    """SIGSTOP: connections are made and bytes buffered; the answers come after SIGCONT."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        a.start(echo_server())
        await asyncio.sleep(0.01)
        loop.pause(a)
        asked = b.start(echo("a"))
        await asyncio.sleep(10)
        assert not asked.done()
        loop.resume(a)
        assert len(await asked) == 3

    simulate(program)


def test_a_cut_resets_and_refuses_and_a_clog_only_holds_back() -> None:
    """Cut: reset both ends and EHOSTUNREACH until healed. Clog: one direction waits, no byte is lost."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        a.start(echo_server())
        await asyncio.sleep(0.01)
        reader, _ = await b.start(asyncio.open_connection("a", 9000))
        loop.cut(a, b)
        with pytest.raises(ConnectionResetError):
            await b.start(reader.read())
        with raises_errno(errno.EHOSTUNREACH):
            await b.start(echo("a"))
        loop.heal(a, b)
        assert len(await b.start(echo("a"))) == 3
        loop.clog(a, b)
        waiting = b.start(echo("a"))
        await asyncio.sleep(10)
        assert not waiting.done()
        loop.heal()
        assert len(await waiting) == 3

    simulate(program)


def test_what_was_sent_before_an_abort_may_come_after_what_a_newer_connection_sends() -> None:
    """The kernel sends on what it has taken, when TCP tries again; or it resets the connection. Both happen."""

    def program_of(heard: list[bytes]) -> Callable[[SimLoop], Coroutine[Any, Any, None]]:
        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                heard.append(await reader.read())
            except ConnectionResetError:
                heard.append(b"reset")
            writer.close()

        async def program(loop: SimLoop) -> None:
            async def say(word: bytes) -> None:
                _, writer = await asyncio.open_connection("a", 9000)
                if word == b"old":
                    loop.clog(b, a)
                writer.write(word)
                writer.transport.abort() if word == b"old" else writer.close()

            a, b = loop.host("a"), loop.host("b")
            a.start(asyncio.start_server(listen, "0.0.0.0", 9000))
            await asyncio.sleep(0.01)
            await b.start(say(b"old"))
            await asyncio.sleep(5)
            loop.heal()
            await b.start(say(b"new"))
            await asyncio.sleep(10)

        return program

    outcomes = set()
    for seed in range(20):
        heard: list[bytes] = []
        simulate(program_of(heard), seed=seed)
        outcomes.add(tuple(heard))
    assert outcomes >= {(b"new", b"old"), (b"new", b"reset")}


def test_a_host_that_dies_during_the_handshake_resets_the_connection() -> None:
    """A protocol is never handed a connection of which it would never hear the end."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        a.start(echo_server())
        loop.network.link(a, b).latency_s = (1.0, 1.0)
        asked = b.start(echo("a"))
        await asyncio.sleep(0.5)
        loop.crash(a)
        a.start(echo_server())
        with pytest.raises(ConnectionResetError):
            await asked

    simulate(program)


def test_a_connection_whose_making_is_cancelled_ends_untold_and_takes_no_more_writes() -> None:
    """uvloop closes the transport silently between `connection_made` and the end of `create_connection`."""
    told: list[str] = []

    class Hasty(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            told.append("made")
            making[0].cancel()

        def connection_lost(self, error: Exception | None) -> None:
            told.append("lost")

    making: list[asyncio.Task[Any]] = []

    async def program(loop: SimLoop) -> None:
        loop.host("a").start(echo_server())
        await asyncio.sleep(0.01)
        hasty = Hasty()
        making.append(asyncio.create_task(loop.create_connection(lambda: hasty, "a", 9000)))
        await asyncio.wait(making)
        await asyncio.sleep(1)
        assert making[0].cancelled() and told == ["made"]
        assert isinstance(hasty.transport, asyncio.Transport) and hasty.transport.is_closing()
        with pytest.raises(RuntimeError):
            hasty.transport.write(b"anybody there?")

    simulate(program)


def test_ports_are_taken_and_names_resolved_as_on_a_real_host() -> None:
    """A taken port is in use, another host's address is not ours to bind, unknown names do not resolve."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        server = await a.start(loop.create_server(Writer, "127.0.0.1", 9000))
        with raises_errno(errno.EADDRINUSE):
            await a.start(loop.create_server(Writer, "a", 9000))
        with raises_errno(errno.EADDRNOTAVAIL):
            await b.start(loop.create_server(Writer, "a", 9001))
        with pytest.raises(socket.gaierror):
            await b.start(loop.create_connection(Writer, "nobody", 1))
        server.close()
        await a.start(loop.create_server(Writer, a.address, 9000))
        await a.start(loop.create_connection(Writer, "localhost", 9000))

    simulate(program)


def test_a_process_killed_inside_a_callback_leaves_no_port_bound() -> None:
    """Its successor would find it taken by a dead process."""

    async def program(loop: SimLoop) -> None:
        host = loop.host("node")
        ended = loop.create_future()

        async def dying() -> None:
            host.crash()
            try:
                await loop.create_server(asyncio.Protocol, "0.0.0.0", 9000)
            except OSError:
                loop.main.call(ended.set_result, True)

        host.start(dying())
        assert await ended
        await host.start(loop.create_server(asyncio.Protocol, "0.0.0.0", 9000))

    simulate(program)


def test_the_environment_belongs_to_its_host() -> None:
    """Chance, wall clock and disk are the host's own; offloaded calls take virtual time."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        b.clock_offset_ms = 5_000

        async def probe(env: SimEnv) -> tuple[int, float, float]:
            start = loop.time()
            assert await env.offload(lambda: 42) == 42
            with pytest.raises(ZeroDivisionError):
                await env.offload(lambda: 1 // 0)
            return env.wall_clock_ms(), env.random.random(), loop.time() - start

        one = await a.start(probe(SimEnv(a)))
        other = await b.start(probe(SimEnv(b)))
        assert other[0] - one[0] == pytest.approx(5_000, abs=100)
        assert one[1] != other[1]
        assert one[2] > 0
        a.disk.write_file("/data/a", b"kept")
        file = a.disk.open("/data/a")
        a.crash()
        with raises_errno(errno.EBADF):
            file.size()
        assert a.disk.read_file("/data/a") == b"kept"

    simulate(program)


def test_an_uncaught_error_fails_the_simulation_and_names_the_seed() -> None:
    """A callback that raises is a finding, and so is a failed task that was never awaited."""
    kept: list[object] = []

    async def raising(loop: SimLoop) -> None:
        loop.host("a").call(lambda: 1 // 0)
        await asyncio.sleep(1)

    async def failing(loop: SimLoop) -> None:
        async def program() -> int:
            return 1 // 0

        kept.append(loop.host("a").start(program()))
        await asyncio.sleep(1)

    for program in (raising, failing):
        with pytest.raises(SimulationFailed, match="seed 9"):
            simulate(program, seed=9)


def test_what_a_killed_process_did_not_fetch_is_no_failure() -> None:
    """It would have, had it lived a callback longer."""

    async def program(loop: SimLoop) -> None:
        async def ask(answer: asyncio.Future[None]) -> None:
            await answer

        def fail() -> None:
            asked[0].set_exception(OSError("too late"))
            loop.crash(host)

        host = loop.host("a")
        asked = [loop.create_future()]
        host.call(lambda: asked.__setitem__(0, loop.create_future()))
        await asyncio.sleep(0.01)
        host.start(ask(asked[0]))
        await asyncio.sleep(0.01)
        fail()
        asked.clear()
        gc.collect()

    simulate(program)


def test_waiting_for_what_cannot_happen_ends_the_simulation() -> None:
    """With no ready callback and no timer the run stalls; a busy loop runs into the time limit."""

    async def forever(loop: SimLoop) -> None:
        await asyncio.Event().wait()

    async def spinning(loop: SimLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStalled):
        simulate(forever)
    with pytest.raises(SimulationFailed, match=r"0\.010 s"):
        simulate(spinning, limit_s=0.01)


async def busy(loop: SimLoop) -> list[Any]:
    """Several hosts, crashes, sets of tasks: much that could differ between two runs."""
    hosts = [loop.host(name) for name in ("a", "b", "c")]
    for host in hosts:
        host.start(echo_server())
    await asyncio.sleep(0.01)
    tasks = {host.start(echo(other.name, 5)) for host in hosts for other in hosts}
    order = []
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order += [task.get_name() for task in done]
    loop.crash(hosts[0])
    results = await asyncio.gather(*(host.start(echo("a")) for host in hosts[1:]), return_exceptions=True)
    return [order, [type(each).__name__ for each in results]]


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    """Equal digests and results for equal seeds, within one interpreter."""
    first, again, other = simulate(busy, seed=1), simulate(busy, seed=1), simulate(busy, seed=2)
    assert first == again
    assert first.digest != other.digest
