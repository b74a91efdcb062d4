"""Test threads, signal handlers and callbacks that exit or interrupt (R-HO-2, R-HO-3, R-HO-5)."""

from __future__ import annotations

import errno
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S
from tests.unit.api.loopback_scene import PATIENCE, fill, one_broker

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import ClientClosedError, IllegalStateError
from odradek.common.types import TopicPartition

TP = TopicPartition("t", 0)
GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
ALONE: dict[str, Any] = {"auto_offset_reset": "earliest"}


@contextmanager
def consumer_of(servers: str, options: dict[str, Any]) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=servers, **options) as consumer:
        if "group_id" in options:
            consumer.subscribe(["t"])
        else:
            consumer.assign([TP])
        yield consumer


def in_thread(action: Callable[[], object], name: str = "other") -> list[BaseException | object]:
    """Return what an action returns or raises in another thread."""
    found: list[BaseException | object] = []

    def run() -> None:
        try:
            found.append(action())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "the thread hangs"
    return found


@pytest.mark.parametrize("options", [GROUP, ALONE])
def test_poll_in_a_second_thread_raises_and_names_both_threads(options: dict[str, Any]) -> None:
    with one_broker() as (_, servers), consumer_of(servers, options) as consumer:
        inside = threading.Event()
        consumer.listen(lambda _: inside.set())

        def poll() -> None:
            with pytest.raises(ClientClosedError):
                consumer.poll(PATIENCE)

        polling = threading.Thread(target=poll, name="first")
        polling.start()
        assert inside.wait(PATIENCE)
        calls = [
            lambda: consumer.poll(PATIENCE),
            lambda: consumer.poll_arrow(PATIENCE),
            lambda: next(consumer.records(PATIENCE)),
            lambda: next(consumer.batches(PATIENCE)),
        ]
        for call in calls:
            (error,) = in_thread(call, "second")
            assert isinstance(error, IllegalStateError)
            assert "'first'" in str(error)
            assert "'second'" in str(error)
        consumer.close()  # in another thread than `poll`
        polling.join(PATIENCE)
        assert not polling.is_alive()


@pytest.mark.parametrize("options", [GROUP, ALONE, {**ALONE, "background": True}])
def test_close_in_another_thread_ends_poll_and_closes_all_sockets(
    options: dict[str, Any],
) -> None:
    with one_broker() as (_, servers):
        before = set(Path("/proc/self/fd").iterdir())
        consumer = Consumer(bootstrap_servers=servers, **options)
        if "group_id" in options:
            consumer.subscribe(["t"])
        else:
            consumer.assign([TP])
        consumer.poll(0.2)
        inside = threading.Event()
        ended: list[object] = []

        def poll() -> None:
            inside.set()
            try:
                while True:
                    consumer.poll(PATIENCE)
            except ClientClosedError as error:
                ended.append(error)

        polling = threading.Thread(target=poll)
        polling.start()
        assert inside.wait(PATIENCE)
        consumer.close()
        consumer.close()
        polling.join(PATIENCE)
        assert len(ended) == 1
        until = time.monotonic() + PATIENCE
        while set(Path("/proc/self/fd").iterdir()) - before and time.monotonic() < until:
            time.sleep(0.01)  # the broker closes its sockets later
        assert set(Path("/proc/self/fd").iterdir()) - before == set()


@contextmanager
def on_signal(action: Callable[[], object]) -> Iterator[list[object]]:
    """Call `action` in the handler of SIGUSR1, whatever the signal interrupts."""
    seen: list[object] = []

    def handler(*_: object) -> None:
        try:
            seen.append(action())
        except IllegalStateError as error:
            seen.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("options", [GROUP, ALONE])
def test_a_signal_handler_may_call_some_methods_while_the_client_holds_its_lock(
    options: dict[str, Any],
) -> None:
    with one_broker() as (_, servers):
        fill(servers, 10)
        with consumer_of(servers, options) as consumer:
            while not consumer.poll(1.0):
                pass
            calls: list[tuple[Callable[[], object], bool]] = [
                (lambda: consumer.pause([TP]), True),
                (lambda: consumer.resume([TP]), True),
                (consumer.explain, True),
                (lambda: consumer.seek(TP, 3), False),
                (lambda: consumer.poll(PATIENCE), False),
            ]
            for call, served in calls:
                with on_signal(call) as seen, consumer._host.lock:
                    signal.raise_signal(signal.SIGUSR1)
                assert isinstance(seen[0], IllegalStateError) is not served
            consumer.seek(TP, 0)
            assert len(consumer.poll(PATIENCE)) == 10


def test_a_signal_handler_may_close_a_consumer_that_waits_in_poll() -> None:
    with one_broker() as (_, servers), consumer_of(servers, ALONE) as consumer:
        consumer.poll(0.1)
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            while not consumer._host._wake_up.sleeping:  # type: ignore[attr-defined]
                time.sleep(0.001)
            signal.pthread_kill(main, signal.SIGUSR1)

        with on_signal(consumer.close):
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(ClientClosedError):
                consumer.poll(PATIENCE)
            thread.join()


def test_a_blocking_call_in_a_signal_handler_raises_while_the_lock_is_held() -> None:
    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"1").result(PATIENCE)
        for call in (lambda: producer.send("t", b"2"), producer.flush, producer.close):
            with on_signal(call) as seen, producer._host.lock:
                signal.raise_signal(signal.SIGUSR1)
            assert isinstance(seen[0], IllegalStateError)
        producer.send("t", b"3").result(PATIENCE)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_delivery_callback_may_close_its_producer_only_without_waiting(
    given_up: bool,
) -> None:
    seen: list[BaseException | None] = []

    def close(*_: object) -> None:
        try:
            producer.close(*[0.0] * given_up)
        except BaseException as error:
            seen.append(error)
        else:
            seen.append(None)

    with one_broker() as (_, servers):
        producer = Producer(bootstrap_servers=servers, batch_size=200, linger_ms=60_000)
        producer.partitions_for("t", PATIENCE)
        producer.send("t", bytes(150), on_delivery=close)
        later = producer.send("t", bytes(150))
        first = producer.send("t", b"")  # the record's batch isn't full
        while not seen:
            time.sleep(0.01)
        if given_up:
            assert seen == [None]
            for future in (later, first):
                assert isinstance(future.exception(PATIENCE), ClientClosedError | None)
            assert isinstance(first.exception(0), ClientClosedError)
            with pytest.raises(ClientClosedError):
                producer.send("t", b"")
        else:
            assert isinstance(seen[0], IllegalStateError)
            producer.flush(PATIENCE)
            assert first.exception(0) is later.exception(0) is None
        producer.close()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_raised_in_a_delivery_callback_reaches_the_caller(
    kind: type[BaseException],
) -> None:
    def leave(*_: object) -> None:
        raise kind(3)

    with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as producer:
        future = producer.send("t", b"1", on_delivery=leave)
        with pytest.raises(kind):  # the first or the second `flush` raises the exit
            producer.flush(PATIENCE)
            producer.flush(PATIENCE)
        assert future.result(PATIENCE).offset == 0
        assert producer.send("t", b"2").result(PATIENCE).offset == 1
        with pytest.raises(kind):
            producer.send("t", b"3", on_delivery=leave)
            producer.close()
        assert producer._closed


def test_an_exit_raised_in_an_event_listener_reaches_the_caller() -> None:
    told: list[object] = []

    def leave(event: object) -> None:
        told.append(event)
        if len(told) < 4:
            sys.exit(4)

    with one_broker() as (_, servers):
        fill(servers, 10)
        with consumer_of(servers, ALONE) as consumer:
            consumer.listen(leave)
            raised = 0
            records: list[Any] = []
            while len(records) < 10:
                try:
                    records += consumer.poll(PATIENCE)
                except SystemExit:
                    raised += 1
            assert raised == 3


def test_an_exit_raised_in_a_rebalance_callback_reaches_the_caller() -> None:
    def leave(*_: object) -> None:
        sys.exit(5)

    with one_broker() as (_, servers):
        fill(servers, 10)
        with Consumer(bootstrap_servers=servers, **GROUP) as consumer:
            consumer.subscribe(["t"], on_assigned=leave)
            with pytest.raises(SystemExit):
                consumer.poll(PATIENCE)
            assert len(consumer.poll(PATIENCE)) == 10


LIMITED = """
import os, resource, sys
from odradek import Producer
from odradek.errors import SystemLimitError
producer = Producer(bootstrap_servers=sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = [os.open("/dev/null", os.O_RDONLY)]
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    os.close(held.pop())  # one is left: for the selector, and not for its wake-up
try:
    producer.send("t", b"first")
except SystemLimitError as error:
    print(error.errno)
for descriptor in held:
    os.close(descriptor)
print(producer.send("t", b"second").result(20).offset)
producer.close()
"""


@pytest.mark.slow
def test_a_producer_works_after_running_out_of_file_descriptors() -> None:
    with one_broker() as (_, servers):
        command = [sys.executable, "-c", LIMITED, servers]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ended.stdout, ended.stderr) == (f"{errno.EMFILE}\n0\n", "")


@pytest.mark.slow
def test_a_logging_handler_may_call_the_client(caplog: pytest.LogCaptureFixture) -> None:
    with one_broker() as (_, servers), consumer_of(servers, GROUP) as consumer:
        called: list[object] = []

        class CallingHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                called.append(consumer.explain())
                consumer.pause([])

        handler = CallingHandler()
        logging.getLogger("odradek").addHandler(handler)
        try:
            with caplog.at_level(logging.DEBUG, "odradek"):
                assert consumer.poll(1.0) == []
        finally:
            logging.getLogger("odradek").removeHandler(handler)
        assert called


def test_a_logging_handler_may_wait_for_its_own_records() -> None:
    app, library = logging.getLogger("an-application"), logging.getLogger("odradek")
    lines: list[str] = []
    offsets: list[int] = []
    with one_broker() as (_, servers):
        # If the test fails, it ends after max.block.ms.
        producer = Producer(bootstrap_servers=servers, max_block_ms=5000)

        class ToKafka(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.name == app.name:
                    sent = producer.send("t", record.getMessage().encode())
                    offsets.append(sent.result(PATIENCE).offset)
                else:
                    lines.append(record.getMessage())

        handler, level = ToKafka(), library.level
        for one in (app, library):
            one.addHandler(handler)
        library.setLevel(logging.DEBUG)  # the I/O thread also logs lines
        try:
            app.warning("first")
            app.warning("second")
            producer.close()
        finally:
            library.setLevel(level)
            for one in (app, library):
                one.removeHandler(handler)
    assert offsets == [0, 1]
    assert any("ready" in line for line in lines)
    assert "closed" in lines[-1]


def test_a_send_in_a_callback_does_not_wait_for_memory() -> None:
    sent: list[Any] = []
    # If the record were acknowledged at once, the callback would run in this thread.
    settings: dict[str, Any] = {"linger_ms": 100}
    with one_broker() as (_, servers), Producer(bootstrap_servers=servers, **settings) as producer:
        accumulator = producer._engine.accumulator

        def again(*_: object) -> None:
            accumulator.waiters[again] = None  # another caller waits for much more memory
            try:
                sent.append(producer.send("t", b"again"))
            finally:
                accumulator.waiters.clear()

        producer.send("t", b"first", on_delivery=again).result(PATIENCE)
        producer.flush(PATIENCE)
        (future,) = sent
        assert future.result(PATIENCE).offset == 1


def test_a_send_in_a_signal_handler_raises_if_the_interrupted_send_waits_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler would wait until `max.block.ms` for memory that the interrupted thread frees."""
    with one_broker() as (_, servers):
        options: dict[str, Any] = {"buffer_memory": 40_000, "max_request_size": 40_000}
        with Producer(bootstrap_servers=servers, max_block_ms=60_000, **options) as producer:
            producer.partitions_for("t")
            run, refused = producer._host.run, []

            def interrupted(*arguments: Any) -> bool:
                monkeypatch.setattr(producer._host, "run", run)
                with pytest.raises(
                    IllegalStateError, match="waits for free buffer.memory"
                ) as found:
                    producer.send("t", bytes(39_000))
                refused.append(found)
                return run(*arguments)

            first = producer.send("t", bytes(30_000))
            monkeypatch.setattr(producer._host, "run", interrupted)
            second = producer.send("t", bytes(30_001))
            assert len(refused) == 1
            assert [future.result(PATIENCE).offset for future in (first, second)] == [0, 1]
            assert producer.send("t", bytes(39_000)).result(PATIENCE).offset == 2


def test_an_interrupted_wait_for_memory_leaves_no_waiter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_broker() as (_, servers):
        options: dict[str, Any] = {"buffer_memory": 40_000, "max_request_size": 40_000}
        with Producer(bootstrap_servers=servers, max_block_ms=5000, **options) as producer:
            producer.partitions_for("t")
            run = producer._host.run
            accumulator = producer._engine.accumulator
            for granted in (False, True):
                with monkeypatch.context() as patch:

                    def interrupted(*arguments: Any) -> bool:
                        if granted:  # noqa: B023  # it is called in the same iteration
                            assert run(*arguments)
                        raise KeyboardInterrupt

                    patch.setattr(producer._host, "run", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        for _ in range(3):
                            producer.send("t", bytes(30_000))
                assert producer.send("t", bytes(39_000)).result(PATIENCE)
            producer.flush(PATIENCE)
            left = (accumulator.used, len(accumulator.waiters), accumulator.granted)
            assert left == (0, 0, {})
