"""Test the I/O loop that runs in the caller's thread, over loopback sockets."""

from __future__ import annotations

import hashlib
import random
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Literal

import pytest
from tests.own_time import ends_at
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, Talk, echo, peer, refused_port, run

from odradek.common.errors import IllegalStateError
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.runtime.hosts import selector_host
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.transport import IOV_MAX


def test_bytes_are_sent_and_received(host: SelectorHost, engine: ScriptedEngine) -> None:
    with peer(echo) as server:
        connection = engine.open(server.port)
        engine.send(connection, b"be", b"fore ", b"")  # sent once the connection is open
        run(host, engine.up[connection])
        engine.send(connection, b"after")
        run(host, engine.expect(connection, 12))
        assert engine.received_bytes[connection] == b"before after"
        engine.close(connection)
        host.drive()
        assert not engine.down[connection].done  # a close by the engine isn't reported


def test_drive_runs_the_engine_again_only_if_input_has_arrived(
    host: SelectorHost, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []
    step = engine.step

    def counted(now: float) -> float | None:
        steps.append(now)
        return step(now)

    with peer(echo) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        monkeypatch.setattr(engine, "step", counted)
        host.drive()
        assert len(steps) == 1
        engine.send(connection, b"x")
        host.drive()
        assert len(steps) == 3


PIECES = 50


def drips(sock: socket.socket) -> None:
    sock.recv(1)
    for _ in range(PIECES):
        sock.sendall(b"-" * 100)
        time.sleep(0.001)
    sock.sendall(b"!")


@pytest.mark.parametrize(("patience", "least", "most"), [(PATIENCE, 1, 4), (0.0, 5, 3 * PIECES)])
def test_a_response_that_arrives_in_pieces_causes_few_steps_of_the_engine(
    host: SelectorHost,
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    least: int,
    most: int,
) -> None:
    steps: list[float] = []
    step, whole = engine.step, Completion[None]()

    def counted(now: float) -> float | None:
        steps.append(now)
        return step(now)

    def updated(connection: int, count: int) -> None:
        if memoryview(engine.scratch)[count - 1] == ord("!"):
            engine.post(lambda now: whole.complete(None))

    with peer(drips) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        monkeypatch.setattr(selector_host, "PIECES", patience)
        monkeypatch.setattr(engine, "step", counted)
        monkeypatch.setattr(engine, "buffer_updated", updated)
        engine.send(connection, b"x")
        run(host, whole)
    assert least <= len(steps) <= most


def test_bytes_that_keep_arriving_do_not_delay_a_deadline(
    host: SelectorHost, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def drips_on(sock: socket.socket) -> None:
        sock.recv(1)
        while not ended.wait(0.001):
            sock.sendall(b"-")

    monkeypatch.setattr(engine, "buffer_updated", lambda connection, count: None)
    with peer(drips_on) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        engine.send(connection, b"x")
        assert not host.run(Completion[None](), host.now() + 0.1)
        ended.set()


def reset(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def says_bye(sock: socket.socket) -> None:
    sock.recv(1)  # else closing the socket would send a reset
    sock.sendall(b"bye")


@pytest.mark.parametrize(
    ("talk", "ip", "kind", "received"),
    [
        pytest.param(None, "127.0.0.1", ConnectionRefusedError, b"", id="refused"),
        pytest.param(None, "not-an-ip", socket.gaierror, b"", id="an invalid address"),
        pytest.param(reset, "127.0.0.1", ConnectionResetError, b"", id="reset"),
        pytest.param(says_bye, "127.0.0.1", type(None), b"bye", id="end"),
    ],
)
def test_the_end_of_a_connection_is_reported_with_its_error(
    host: SelectorHost,
    engine: ScriptedEngine,
    talk: Talk | None,
    ip: str,
    kind: type,
    received: bytes,
) -> None:
    with peer(talk or echo) as server:
        connection = engine.open(server.port if talk else refused_port(), ip=ip)
        engine.send(connection, b"x")
        error = run(host, engine.down[connection]).result()
        assert type(error) is kind
        assert engine.received_bytes[connection] == received
        engine.send(connection, b"too late")  # ignored, as the connection's end was reported
        host.drive()


def test_a_request_that_cannot_be_encoded_does_not_close_the_connection(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    with peer(echo) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        engine.send(connection, "text")  # type: ignore[arg-type]  # the tested mistake
        run(host, engine.unsent[0])
        assert isinstance(engine.unsent[0].result(), TypeError)
        engine.send(connection, b"bytes")
        run(host, engine.expect(connection, 5))


@pytest.mark.slow
def test_50_mb_are_sent_in_order_and_the_engine_is_told_when_writes_must_wait(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    large = random.Random(1).randbytes(25 << 20)
    small = [bytes([i % 256]) * 7 for i in range(3 * IOV_MAX)]
    buffers: list[bytes | memoryview] = [memoryview(large), *small, memoryview(large)]
    expected = hashlib.sha256(b"".join(buffers)).digest()
    total = sum(len(b) for b in buffers)
    go = threading.Event()

    def digest(sock: socket.socket) -> None:
        go.wait(PATIENCE)
        seen, state = 0, hashlib.sha256()
        while seen < total and (data := sock.recv(1 << 20)):
            seen += len(data)
            state.update(data)
        sock.sendall(state.digest())

    with peer(digest) as server:
        connection = engine.open(server.port)
        engine.send(connection, *buffers)
        run(host, engine.up[connection])
        host.drive()
        assert engine.writable_calls == [(connection, False)]
        go.set()
        run(host, engine.expect(connection, 32))
        assert engine.received_bytes[connection] == expected
        assert engine.writable_calls == [(connection, False), (connection, True)]


def test_a_request_without_a_response_is_done_when_its_last_byte_is_sent(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    large = bytes(25 << 20)
    go = threading.Event()

    def read_late(sock: socket.socket) -> None:
        go.wait(PATIENCE)
        while sock.recv(1 << 20):
            pass

    with peer(read_late) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        engine.send(connection, b"small", unanswered=1)
        run(host, engine.written[1])
        engine.send(connection, large, unanswered=2)
        engine.send(connection, b"after it", unanswered=3)
        host.drive()
        assert not engine.written[2].done  # the kernel has accepted only a part
        assert not engine.written[3].done
        go.set()
        run(host, engine.written[3])
        assert engine.written[2].done


@pytest.mark.slow
def test_much_input_of_one_connection_does_not_block_another_connection(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    large = random.Random(2).randbytes(50 << 20)
    with peer(lambda sock: sock.sendall(large)) as flood, peer(echo) as server:
        first, second = engine.open(flood.port), engine.open(server.port)
        engine.send(second, b"ping")
        run(host, engine.expect(second, 4))
        assert len(engine.received_bytes[first]) < len(large)
        run(host, engine.down[first])
        assert engine.received_bytes[first] == large


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_run_ends_at_its_deadline(
    host: SelectorHost, engine: ScriptedEngine, timeout: float
) -> None:
    with peer(echo) as server:
        connection = engine.open(server.port)
        with ends_at(timeout):
            assert not host.run(engine.expect(connection, 1), host.now() + timeout)


def test_run_ends_at_its_deadline_even_while_bytes_arrive(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    block = bytes(1 << 20)

    def pour(sock: socket.socket) -> None:
        while True:
            sock.sendall(block)

    with peer(pour) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        took = []
        for _ in range(5):  # the server's thread may delay some runs
            begin = time.monotonic()
            assert not host.run(Completion(), host.now() + 0.05)
            took.append(time.monotonic() - begin)
        assert min(took) < 0.15
        assert engine.received_bytes[connection]


def test_the_io_loop_wakes_up_at_the_engines_own_deadline(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    def pause() -> Flow[float]:
        now = yield START
        return (yield Wait((), now + 0.02)) - now

    with ends_at(0.02):
        assert run(host, engine.start(pause())).result() >= 0.02


def test_a_wake_up_from_another_thread_is_never_lost(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    rounds = [Completion[None]() for _ in range(2000)]
    turn = threading.Semaphore(0)

    def other() -> None:
        for done in rounds:
            turn.acquire()
            engine.finish(done)
            host.wake()

    thread = threading.Thread(target=other)
    thread.start()
    for done in rounds:
        turn.release()
        run(host, done)
    thread.join()


def test_waking_an_idle_io_loop_opens_no_file_descriptor(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    host.wake()
    assert host._wake_up._pair is None
    assert host._selector is None


@pytest.mark.parametrize("where", ["caller", "worker"])
def test_functions_of_the_engine_run_in_the_callers_thread_or_in_a_worker_thread(
    host: SelectorHost, engine: ScriptedEngine, where: Literal["caller", "worker"]
) -> None:
    deadline = host.now() + PATIENCE
    answer = engine.ask(lambda x: (x, threading.get_ident()), 7, where=where, deadline=deadline)
    found, thread = run(host, answer).result()
    assert found == 7
    assert (thread == threading.get_ident()) == (where == "caller")
    failed = engine.ask(int, "seven", where=where, deadline=deadline)
    with pytest.raises(ValueError, match="seven"):
        run(host, failed).result()


def test_a_function_in_a_worker_thread_times_out_at_its_deadline(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    go = threading.Event()
    answer = engine.ask(go.wait, PATIENCE, where="worker", deadline=host.now() + 0.02)
    run(host, answer)
    assert isinstance(answer.error, TimeoutError)
    go.set()


def test_a_function_run_by_the_io_loop_may_use_the_io_loop(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    inner: Completion[None] = Completion()

    def nested() -> bool:
        engine.finish(inner)
        return host.run(inner, host.now() + PATIENCE)

    answer = engine.ask(nested, where="caller", deadline=host.now() + PATIENCE)
    assert run(host, answer).result() is True


def test_a_callback_during_a_step_cannot_wait_but_may_close_the_io_loop(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    seen: list[str] = []
    done: Completion[None] = Completion()

    def callback(_: object) -> None:
        with pytest.raises(IllegalStateError, match="callback"):
            host.run(Completion(), None)
        host.drive()
        host.close(host.now() + 1)
        assert not host._closed  # the I/O loop closes only after the step
        host.defer(lambda: seen.append("deferred"))

    done.when_done(callback)
    engine.finish(done)
    run(host, done)
    assert host._closed
    assert seen == ["deferred"]


def test_a_call_in_a_second_thread_is_rejected(host: SelectorHost, engine: ScriptedEngine) -> None:
    def call() -> BaseException | None:
        with ThreadPoolExecutor(1) as other:
            return other.submit(host.drive).exception()

    answer = engine.ask(call, where="caller", deadline=host.now() + PATIENCE)
    assert "another thread" in str(run(host, answer).result())


@pytest.mark.parametrize("takes", [True, False])
def test_close_writes_queued_bytes_until_its_deadline(
    host: SelectorHost, engine: ScriptedEngine, takes: bool
) -> None:
    go, seen = threading.Event(), Queue[int]()

    def count(sock: socket.socket) -> None:
        go.wait(PATIENCE)
        seen.put(sum(iter(lambda: len(sock.recv(1 << 20)), 0)))

    with peer(count) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        engine.send(connection, bytes(20 << 20))
        host.drive()
        assert host._transports[connection].queued
        if takes:
            engine.close(connection)
            go.set()
            host.close(host.now() + PATIENCE)
            assert seen.get(timeout=PATIENCE) == 20 << 20
        else:
            with ends_at(0.05):
                host.close(host.now() + 0.05)
            go.set()


def test_after_close_no_connection_is_opened(host: SelectorHost, engine: ScriptedEngine) -> None:
    host.close(host.now())
    host.close(host.now())
    engine.open(refused_port())
    done: Completion[None] = Completion()
    assert not host.run(done, None)  # run returns False, because no input can arrive
    engine.finish(done)
    assert host.run(done, None)
    host.drive()
    assert host._selector is None


def test_an_io_loop_closed_by_a_signal_handler_as_bytes_arrive_opens_no_connection(
    host: SelectorHost, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = host._select

    def closed_right_after(
        selector: selectors.BaseSelector, timeout: float | None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        ready = select(selector, timeout)
        if any(key.data is not None for key, _ in ready) and not host._closed:
            host.close(host.now())
        return ready

    with peer(echo) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        engine.send(connection, b"x")
        monkeypatch.setattr(host, "_select", closed_right_after)
        assert not host.run(Completion(), host.now() + PATIENCE)
    assert not host.in_use


def test_a_closed_io_loop_leaves_no_file_descriptor_open(engine: ScriptedEngine) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with peer(echo) as server:
        host = SelectorHost()
        host.attach(engine)
        connections = [engine.open(server.port), engine.open(refused_port())]
        run(host, engine.up[connections[0]])
        run(host, engine.down[connections[1]])
        assert not host.run(Completion(), host.now() + 0.01)
        host.close(host.now())
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Install Python's default SIGINT handler; the parent process may have ignored SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def raising(times: int = 1) -> Flow[None]:
    yield START
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_the_io_loop_remains_usable_after_ctrl_c_during_a_wait(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def other() -> None:
        while not host._wake_up.sleeping:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    with peer(echo) as server:
        connection = engine.open(server.port)
        run(host, engine.up[connection])
        thread = threading.Thread(target=other)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            host.run(Completion(), host.now() + PATIENCE)
        thread.join()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        engine.send(connection, b"still here")
        run(host, engine.expect(connection, 10))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_a_step_is_raised_after_the_step(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    step = engine.start(raising())
    with pytest.raises(KeyboardInterrupt):
        host.run(Completion(), host.now() + PATIENCE)
    assert step.result() is None
    assert engine.ended is None
    done: Completion[None] = Completion()
    engine.finish(done)
    run(host, done)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_during_a_step_is_raised_at_once(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    step = engine.start(raising(2))
    with pytest.raises(KeyboardInterrupt):
        host.run(Completion(), host.now() + PATIENCE)
    assert step.error is engine.ended is not None  # the interrupt ended the engine


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_a_function_of_the_application_is_raised_in_that_function(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    answer = engine.ask(
        signal.raise_signal, signal.SIGINT, where="caller", deadline=host.now() + PATIENCE
    )
    with pytest.raises(KeyboardInterrupt):
        host.run(answer, host.now() + PATIENCE)
    host.drive()
    assert isinstance(answer.error, KeyboardInterrupt)


def test_a_sigint_handler_of_the_application_is_not_replaced(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        run(host, engine.start(raising()))
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_each_client_has_its_own_random_generator() -> None:
    assert SelectorHost(seed=7).rng().random() == SelectorHost(seed=7).rng().random()
    assert SelectorHost().rng().random() != SelectorHost().rng().random()
    host = SelectorHost(seed=1)
    assert host.rng() is host.rng()


def test_an_io_loop_accepts_only_one_engine_and_cannot_run_without_one(host: SelectorHost) -> None:
    with pytest.raises(IllegalStateError, match="already"):
        host.attach(ScriptedEngine())
    with pytest.raises(IllegalStateError, match="hasn.t been started"):
        SelectorHost().drive()
