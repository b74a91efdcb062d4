"""R-HO-1: test that exceptions of signal handlers are distinguished from the client's errors."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker

from odradek.api.admin import Admin
from odradek.common.errors import ClientBrokenError
from odradek.network.flow import START, Signal, Wait
from odradek.runtime.hosts.interrupt import from_outside


class MineError(Exception):
    """The exception that this module's signal handlers raise."""


def plain(*_: Any) -> None:
    raise MineError


def deeper() -> None:
    raise MineError


def forgets_its_frame(number: int, frame: object) -> None:
    del frame
    raise MineError


def takes_itself_away(number: int, frame: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    raise MineError


def times_out(*_: Any) -> None:
    raise TimeoutError("mine")


class Handler:
    def __call__(self, *_: Any) -> None:
        raise MineError

    def method(self, *_: Any) -> None:
        raise MineError


HANDLERS: dict[str, Callable[..., Any]] = {
    "function": plain,
    "forgets": forgets_its_frame,
    "takes itself away": takes_itself_away,
    "method": Handler().method,
    "object": Handler(),
    "partial": partial(partial(plain, 1), 2),
    "lambda": lambda *_: deeper(),
}


@pytest.fixture(params=HANDLERS)
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    with handled_by(HANDLERS[request.param]):
        yield


@contextmanager
def handled_by(handler: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def admin() -> Iterator[Admin]:
    """Yield an admin client that has connected to a broker."""
    with one_broker() as (_, servers), Admin(bootstrap_servers=servers) as made:
        assert "t" in made.list_topics(PATIENCE)
        yield made


def transport_of(admin: Admin) -> Any:
    (transport,) = admin._host._transports.values()  # type: ignore[attr-defined]
    return transport


def interrupted() -> None:
    signal.raise_signal(signal.SIGUSR1)


def test_an_exception_of_a_signal_handler_is_recognized_by_its_traceback(handler: None) -> None:
    with pytest.raises(MineError) as caught:
        interrupted()
    assert from_outside(caught.value)
    with pytest.raises(MineError) as own:  # the same class, but not raised in the handler
        deeper()
    assert not from_outside(own.value)
    assert from_outside(KeyboardInterrupt())


class Interruptible:
    """A component of an engine that runs an action once during a step."""

    resting = False

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def advance(self, now: float) -> bool:
        action, self.action = self.action, lambda: None
        action()
        return False

    def next_deadline(self, now: float) -> None:
        return None

    def abort(self, error: object, now: float) -> None:
        pass


def test_a_signal_handlers_exception_in_a_step_is_raised_and_the_client_remains_usable(
    handler: None, admin: Admin
) -> None:
    engine = admin._engine
    engine.components.append(Interruptible(interrupted))
    with pytest.raises(MineError):
        admin.list_topics(PATIENCE)
    assert "t" in admin.list_topics(PATIENCE)
    assert admin._engine is not engine
    assert admin.ended is None


@pytest.mark.parametrize("then", ["nothing", "an interrupt"])
def test_an_error_of_the_engine_ends_the_client_permanently(
    handler: None, admin: Admin, then: str
) -> None:
    admin._engine.components.append(Interruptible(deeper))
    with pytest.raises(ClientBrokenError, match="MineError"):
        admin.list_topics(PATIENCE)
    if then == "an interrupt":
        admin._engine.post(lambda _: interrupted())
        with pytest.raises((MineError, ClientBrokenError)):
            admin.list_topics(PATIENCE)
    with pytest.raises(ClientBrokenError, match="MineError"):
        admin.list_topics(PATIENCE)


def test_a_timeout_error_of_a_signal_handler_is_raised_to_the_caller(admin: Admin) -> None:
    transport = transport_of(admin)
    receive = transport.receive

    def receiving(buffer: Any) -> Any:
        transport.receive = receive
        interrupted()

    transport.receive = receiving
    with handled_by(times_out), pytest.raises(TimeoutError, match="mine"):
        admin.list_topics(PATIENCE)
    assert "t" in admin.list_topics(PATIENCE)


def test_an_exception_of_a_signal_handler_during_a_calls_cleanup_is_raised(
    admin: Admin,
) -> None:
    """Python swallows exceptions of a generator's `finally` if garbage collection runs it."""

    def flow() -> Any:
        try:
            yield START
            yield Wait((Signal(),))
        finally:
            interrupted()

    with handled_by(plain):
        admin._engine.start(flow())
        admin.list_topics(PATIENCE)
        transport_of(admin).receive = lambda _: interrupted()  # interrupts between two steps
        for _ in range(2):
            with pytest.raises(MineError):
                admin.list_topics(PATIENCE)
        assert "t" in admin.list_topics(PATIENCE)
