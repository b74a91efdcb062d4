"""Test the I/O host that runs a client's engine in a separate thread."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.own_time import ends_at
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, echo, peer, run

from odradek.common.errors import ClientBrokenError, IllegalStateError, SystemLimitError
from odradek.network.flow import Completion
from odradek.runtime.hosts.thread_host import ThreadHost


def io_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "odradek-io"]


def test_the_thread_starts_at_the_first_call_and_works_without_further_calls(
    thread_host: ThreadHost, engine: ScriptedEngine
) -> None:
    assert not io_threads()
    with peer(echo) as server:
        connection = engine.open(server.port)
        engine.send(connection, b"alone")
        arrived = threading.Event()
        engine.expect(connection, 5).when_done(lambda _: arrived.set())
        thread_host.wake()
        assert arrived.wait(PATIENCE)
        assert len(io_threads()) == 1
        assert engine.received_bytes[connection] == b"alone"


def test_a_call_that_ends_at_its_deadline_leaves_nothing_in_the_list_of_waiting_calls(
    thread_host: ThreadHost,
) -> None:
    never: Completion[None] = Completion()
    with ends_at(0.03):
        assert not thread_host.run(never, thread_host.now() + 0.03)
    assert not never._callbacks
    assert not thread_host._waiters


def test_many_threads_can_wait_at_the_same_time(
    thread_host: ThreadHost, engine: ScriptedEngine
) -> None:
    def call(_: int) -> bool:
        done: Completion[None] = Completion()
        engine.finish(done)
        return thread_host.run(done, thread_host.now() + PATIENCE)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(800)))


def test_functions_for_the_caller_run_in_the_thread_that_waits(
    thread_host: ThreadHost, engine: ScriptedEngine
) -> None:
    deadline = thread_host.now() + PATIENCE
    answer = engine.ask(threading.get_ident, where="caller", deadline=deadline)
    assert run(thread_host, answer).result() == threading.get_ident()


def test_a_function_for_a_caller_times_out_if_no_thread_waits(
    thread_host: ThreadHost, engine: ScriptedEngine
) -> None:
    ended, ran = threading.Event(), threading.Event()
    answer = engine.ask(ran.set, where="caller", deadline=thread_host.now() + 0.02)
    answer.when_done(lambda _: ended.set())
    thread_host.wake()
    assert ended.wait(PATIENCE)
    assert isinstance(answer.error, TimeoutError)
    done: Completion[None] = Completion()
    engine.finish(done)
    run(thread_host, done)
    assert not ran.is_set()  # the function doesn't run after its deadline


def test_close_ends_the_thread(thread_host: ThreadHost, engine: ScriptedEngine) -> None:
    with peer(echo) as server:
        connection = engine.open(server.port)
        run(thread_host, engine.up[connection])
        begin = time.monotonic()
        thread_host.close(thread_host.now() + PATIENCE)
        assert time.monotonic() - begin < PATIENCE / 2
        assert not io_threads()
    done: Completion[None] = Completion()
    assert not thread_host.run(done, None)
    engine.finish(done)
    assert thread_host.run(done, None)
    assert not io_threads()


def test_close_before_the_first_call_starts_no_thread(thread_host: ThreadHost) -> None:
    thread_host.close(thread_host.now())
    thread_host.wake()
    assert not io_threads()


@pytest.mark.parametrize("comes", ["never", "late"])
def test_after_an_interrupted_start_of_the_io_thread_the_client_can_be_closed(
    thread_host: ThreadHost, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """After a Ctrl-C in `Thread.start`, the thread may still start later; then it ends at once."""

    def interrupted(self: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread_host.wake()
    monkeypatch.undo()
    thread = thread_host._thread
    assert thread is not None
    for _ in range(2):
        thread_host.close(thread_host.now() + PATIENCE)
    if comes == "late":
        thread.start()
        thread.join(PATIENCE)
    assert not io_threads()
    assert not thread_host.in_use


def test_a_callback_in_the_io_thread_may_close_the_client_but_cannot_wait(
    thread_host: ThreadHost, engine: ScriptedEngine
) -> None:
    raised = []

    def callback(_: object) -> None:
        with pytest.raises(IllegalStateError) as caught:
            thread_host.run(Completion(), None)
        raised.append(caught.value)
        thread_host.close(thread_host.now() + PATIENCE)  # doesn't wait for its own thread

    done: Completion[None] = Completion()
    done.when_done(callback)
    engine.finish(done)
    run(thread_host, done)
    for thread in io_threads():
        thread.join(PATIENCE)
    assert raised


def test_an_exception_in_the_thread_is_raised_in_all_waiting_calls(thread_host: ThreadHost) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    thread_host.defer(fail)
    with pytest.raises(ClientBrokenError, match="a bug"):
        thread_host.run(Completion(), thread_host.now() + PATIENCE)


@pytest.mark.parametrize(
    "opener", [(selectors, "DefaultSelector"), (socket, "socketpair")], ids=["selector", "pair"]
)
@pytest.mark.parametrize("by_run", [True, False], ids=["run", "wake"])
def test_a_call_fails_if_no_file_descriptor_is_free_and_a_later_call_works(
    thread_host: ThreadHost,
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    opener: tuple[Any, str],
    by_run: bool,
) -> None:
    done: Completion[None] = Completion()
    engine.finish(done)
    opened = len(list(Path("/proc/self/fd").iterdir()))

    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(*opener, refuse)
        for _ in range(2):
            with pytest.raises(SystemLimitError, match=os.strerror(errno.EMFILE)) as caught:
                run(thread_host, done) if by_run else thread_host.wake()
            assert caught.value.errno == errno.EMFILE
            assert isinstance(caught.value, OSError)
        assert not io_threads()
        assert len(list(Path("/proc/self/fd").iterdir())) == opened
    run(thread_host, done)
    assert len(io_threads()) == 1
