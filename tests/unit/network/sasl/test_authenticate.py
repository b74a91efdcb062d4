"""Test SASL in a real engine: failures at unusual times, and errors raised by users' code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.planted_secrets import watch, with_locals
from tests.spec.world import ClusterPicture, World

from odradek.common.errors import (
    AuthenticationError,
    ConnectionFailedError,
    CredentialsRefusedError,
    ServerNotTrustedError,
    TokenError,
)
from odradek.network.effects import Call
from odradek.network.host import EngineInputs
from odradek.network.sasl.oauthbearer import Oauthbearer
from odradek.network.sasl.plain import Plain
from odradek.protocol.message import Message
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.simulation.world.host import SimulatedHost

SASL = {
    "bootstrap.servers": "front:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "planted",
}


class CatchingHost(SimulatedHost):
    """A simulated I/O host that passes a function's exception to the engine, as real hosts do."""

    def _call(self, engine: EngineInputs, effect: Call) -> None:
        try:
            result = effect.function(*effect.arguments)
        except BaseException as error:
            engine.called(effect.token, None, error)
        else:
            engine.called(effect.token, result, None)


def world(**config: Any) -> World:
    made = World({**SASL, **config}, hosts=CatchingHost)
    made.modes["front:9092"] = "no_password"
    made.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})
    return made


def error_of(w: World) -> BaseException | None:
    completion = w.engine.start(w.engine.topic("t", 20.0))
    w.engine.track(completion, "t", 20.0)
    w.run(3.0, lambda: completion.done)
    assert w.engine.ended is None
    return completion.error


def test_a_rejected_login_is_reported_even_if_the_broker_closes_the_connection() -> None:
    error = error_of(world())
    assert isinstance(error, CredentialsRefusedError)


class Falsy(Exception):  # noqa: N818  # an exception of a user
    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize("raised", [Falsy(), SystemExit(3), asyncio.CancelledError()])
def test_any_exception_of_a_token_function_becomes_a_token_error(raised: BaseException) -> None:
    def fetch() -> object:
        raise raised

    w = world()
    w.engine.network.mechanism = Oauthbearer(fetch, lambda: 0.0)
    error = error_of(w)
    assert isinstance(error, TokenError)
    assert error.__cause__ is not None


def test_a_password_that_cannot_be_encoded_is_not_shown() -> None:
    w = world(**{"sasl.password": "planted\udcff"})
    assert isinstance(w.engine.network.mechanism, Plain)
    error = error_of(w)
    assert isinstance(error, AuthenticationError)
    seen: list[BaseException | None] = [error, error.__cause__, error.__context__]
    assert not any("planted" in repr(e) for e in seen)


KINDS = {0: ServerNotTrustedError, 58: CredentialsRefusedError, -1: ConnectionFailedError}


@pytest.mark.parametrize("before", [5, 290], ids=["whole", "truncated"])
@pytest.mark.parametrize("code", KINDS)
def test_no_local_variable_shows_a_secret_that_the_broker_returned(code: int, before: int) -> None:
    """A PLAIN password and the broker's copy of it mustn't be in any local of the traceback."""
    planted = "planted-Pa55-of-alice"

    class EchoingBroker(World):
        def answer(self, address: str, body: Any) -> Message | None:
            if isinstance(body, SaslHandshakeRequest):
                return SaslHandshakeResponse(0, ["PLAIN"])
            if not isinstance(body, SaslAuthenticateRequest):
                return None
            if code:
                return SaslAuthenticateResponse(code, "." * before + planted)
            return SaslAuthenticateResponse(auth_bytes=bytes(body.auth_bytes) * 9999)

    w = EchoingBroker({**SASL, "sasl.password": planted})
    w.sasl = None  # the method `answer` plays the broker's side of SASL
    w.modes["front:9092"] = "up"
    w.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})
    raised: list[BaseException] = []
    w.engine.network.on_lost.append(lambda _, error, __, ___: raised.append(error))
    error_of(w)
    watch.found.clear()  # the broker may have shown the password
    assert type(raised[0]) is KINDS[code]
    for shown in (with_locals(raised[0]), str(raised[0])):
        assert planted not in shown
        assert "...planted" not in shown  # not even the password's beginning is shown
