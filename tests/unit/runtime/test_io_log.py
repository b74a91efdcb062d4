"""R-HO-2: test that a separate thread passes log lines of I/O threads to the handlers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.time_limits import HANG_S
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine

from odradek.network.flow import Completion
from odradek.runtime.hosts import io_log as io_log_module
from odradek.runtime.hosts.io_log import IoLog
from odradek.runtime.hosts.thread_host import ThreadHost

logger = logging.getLogger("odradek")


class Keeping(logging.Handler):
    """A handler that stores log lines and their threads, and waits until `held` is set.

    It ignores lines from other modules, because clients of earlier tests may still log.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.held = threading.Event()
        self.held.set()
        self.entered = threading.Event()
        self.records: list[logging.LogRecord] = []
        self.threads: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.pathname not in {__file__, io_log_module.__file__}:
            return
        self.entered.set()
        assert self.held.wait(PATIENCE)
        self.records.append(record)
        self.threads.append(threading.current_thread().name)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def handler() -> Iterator[Keeping]:
    made = Keeping()
    logger.addHandler(made)
    yield made
    made.held.set()
    logger.removeHandler(made)


@pytest.fixture
def io_log() -> Iterator[IoLog]:
    made = IoLog(limit=4, idle=0.001)
    yield made
    for name in ("odradek", "odradek.consumer", "odradek.metadata"):
        logging.getLogger(name).removeFilter(made)


def numbered(text: str, count: int) -> None:
    for number in range(count):
        logger.warning(text, number)


def in_io_thread(io_log: IoLog, action: Callable[[], object]) -> None:
    """Run an action in a thread that is marked as an I/O thread."""

    def work() -> None:
        io_log.enter()
        action()
        io_log.leave()

    thread = threading.Thread(target=work, name="some-io")
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the thread waits for a handler"


def logged_by(io_log: IoLog, action: Callable[[], object]) -> None:
    in_io_thread(io_log, action)
    io_log.drain(PATIENCE)


def test_an_io_thread_never_waits_for_a_log_handler(
    thread_host: ThreadHost, engine: ScriptedEngine, handler: Keeping
) -> None:
    with handler.lock:  # type: ignore[union-attr]  # as during a handler's `emit`
        thread_host.defer(lambda: logger.warning("from %s", "within"))
        done: Completion[None] = Completion()
        engine.finish(done)
        assert thread_host.run(done, thread_host.now() + PATIENCE), "the host waits for the handler"
    thread_host.close(thread_host.now() + PATIENCE)
    (record,) = handler.records
    assert (record.msg, record.args) == ("from %s", ("within",))
    assert (record.threadName, record.funcName) == ("odradek-io", "<lambda>")
    assert handler.threads == ["odradek-log"]


def test_lines_of_io_threads_keep_their_order_and_other_threads_log_directly(
    io_log: IoLog, handler: Keeping
) -> None:
    children = [logger, logging.getLogger("odradek.consumer")]

    def log() -> None:
        for number in range(4):
            children[number % 2].warning("%d", number)

    for _ in range(50):  # at random, the log thread starts or is ending
        handler.records.clear()
        logged_by(io_log, log)
        assert handler.lines == ["0", "1", "2", "3"]
    handler.threads.clear()
    logger.warning("here")
    assert handler.threads == [threading.current_thread().name]


def test_no_log_thread_is_started_without_a_line(io_log: IoLog, handler: Keeping) -> None:
    before = threading.active_count()
    in_io_thread(io_log, lambda: logger.debug("not wanted"))
    assert threading.active_count() == before
    assert handler.records == []


def test_the_number_of_lines_dropped_because_the_queue_was_full_is_logged(
    io_log: IoLog, handler: Keeping
) -> None:
    handler.held.clear()
    in_io_thread(io_log, lambda: logger.warning("first"))
    assert handler.entered.wait(PATIENCE)
    in_io_thread(io_log, lambda: numbered("%d", 10))
    handler.held.set()
    io_log.drain(PATIENCE)
    io_log.drain(PATIENCE)
    said = [record for record in handler.records if "were dropped" not in record.getMessage()]
    assert [record.getMessage() for record in said] == ["first", "0", "1", "2", "3"]
    assert [r.args for r in handler.records if r not in said] == [(6,)]


@pytest.mark.parametrize("stderr", ["open", "closed"])
def test_an_exception_of_a_handler_does_not_affect_other_handlers_and_later_lines(
    io_log: IoLog,
    handler: Keeping,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stderr: str,
) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("this handler always fails")

    if stderr == "closed":
        with Path(os.devnull).open("w") as closed:
            monkeypatch.setattr(sys, "stderr", closed)
    failing = Failing()
    logger.addHandler(failing)
    try:
        for line in ("one", "two"):
            logged_by(io_log, lambda line=line: logger.warning(line))  # type: ignore[misc]
    finally:
        logger.removeHandler(failing)
    assert handler.lines == ["one", "two"]
    assert ("this handler always fails" in capsys.readouterr().err) == (stderr == "open")


def test_a_handler_may_wait_for_queued_lines_without_a_deadlock(
    io_log: IoLog, handler: Keeping
) -> None:
    waited: list[str] = []

    def emit(record: logging.LogRecord) -> None:
        io_log.drain(PATIENCE)
        waited.append(record.getMessage())

    handler.emit = emit  # type: ignore[method-assign]
    logged_by(io_log, lambda: logger.warning("closes the client"))
    assert waited == ["closes the client"]


def test_drain_passes_lines_to_their_handlers_if_no_thread_can_start(
    io_log: IoLog, handler: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def log() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            logger.warning("late")

    in_io_thread(io_log, log)
    assert handler.lines == []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        io_log.drain(PATIENCE)
    assert handler.lines == ["late"]


def test_a_forked_child_does_not_log_its_parents_lines(io_log: IoLog, handler: Keeping) -> None:
    handler.held.clear()
    in_io_thread(io_log, lambda: numbered("parent %d", 3))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            handler.held.set()
            handler.records.clear()
            io_log.drain(PATIENCE)
            logger.warning("straight")
            logged_by(io_log, lambda: logger.warning("later"))
            status = 0 if handler.lines == ["straight", "later"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    handler.held.set()
    io_log.drain(PATIENCE)
    assert handler.lines == ["parent 0", "parent 1", "parent 2"]


def test_a_forked_child_treats_no_thread_as_an_io_thread_of_its_parent(io_log: IoLog) -> None:
    """Threads of the child may have the ids that I/O threads have in the parent."""
    io_log.enter()  # marks this thread as an I/O thread
    child = os.fork()
    if child == 0:
        os._exit(0 if io_log.filter(logging.makeLogRecord({})) else 1)
    io_log.leave()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


PROGRAM = """
import logging, sys, time
from tests.unit.runtime.peers import ScriptedEngine
from odradek.network.flow import Completion
from odradek.runtime.hosts.thread_host import ThreadHost
import odradek.runtime.unclosed_clients

class Slow(logging.StreamHandler):
    def emit(self, record):
        time.sleep(0.01)
        super().emit(record)

logging.getLogger().addHandler(Slow(sys.stdout))
host = ThreadHost()
host.attach(ScriptedEngine())
for number in range(20):
    host.defer(lambda number=number: logging.getLogger("odradek").warning("%d", number))
done = Completion()
host.defer(lambda: done.complete(None))
assert host.run(done, host.now() + 20)
"""


@pytest.mark.slow
def test_lines_logged_before_the_end_of_the_program_are_written() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == [str(number) for number in range(20)]


def test_a_signal_handler_may_log_while_dropped_lines_are_counted(io_log: IoLog) -> None:
    """The handler may interrupt the thread that holds the lock, so the lock must be re-entrant."""
    ended = threading.Event()

    def interrupted() -> None:
        io_log.enter()
        record = logger.makeRecord("odradek", logging.INFO, "f", 1, "x", (), None)
        for _ in range(6):
            io_log._waiting.put(record)
        with io_log._count:
            io_log.filter(record)
        ended.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert ended.wait(PATIENCE)
