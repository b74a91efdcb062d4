"""Test tracebacks of public calls: few frames of odradek, all frames of users' callbacks."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from odradek import AsyncProducer, Consumer, KafkaError, Producer
from odradek.clients.caller_flow import shorten
from odradek.errors import NoBrokerAvailableError
from odradek.testing import FakeCluster

MOST = 4
"""Maximum of odradek's frames in a traceback: the public method and its wrappers."""
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": 50}


def frames(error: BaseException | None) -> list[str]:
    """Return the names of Odradek's functions in an error's traceback."""
    trace, found = error and error.__traceback__, []
    while trace:
        if trace.tb_frame.f_globals["__name__"].startswith("odradek."):
            found.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return found


def no_broker(cluster: FakeCluster) -> None:
    with Producer(NOWHERE) as producer:
        producer.send("t", b"x").result()


def no_broker_for_a_call(cluster: FakeCluster) -> None:
    with Consumer(NOWHERE) as consumer:
        consumer.list_topics()


def unknown_option(cluster: FakeCluster) -> None:
    Producer({**NOWHERE, "lingre.ms": 5})


def unknown_option_of_a_coroutine_client(cluster: FakeCluster) -> None:
    AsyncProducer({**NOWHERE, "lingre.ms": 5})


def wrong_type(cluster: FakeCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send("t", 5)  # type: ignore[arg-type]


def missing_topic(cluster: FakeCluster) -> None:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.partitions_for("missing")


def test_an_error_keeps_the_exception_being_handled_as_its_context() -> None:
    with pytest.raises(KafkaError) as caught:
        try:
            raise KeyError("broker")
        except KeyError:
            Producer({**NOWHERE, "lingre.ms": 5})
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


def test_a_traceback_with_a_callback_of_an_unnamed_module_can_be_shortened() -> None:
    space: dict[str, object] = {"__name__": None, "KafkaError": KafkaError}
    exec("def fail():\n    raise KafkaError('from a callback')", space)  # noqa: S102
    with pytest.raises(KafkaError) as caught:
        space["fail"]()  # type: ignore[operator]
    shorten(caught.value)
    assert caught.value.__traceback__ is not None


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1, topics=["t"]) as found:
        yield found


@pytest.mark.parametrize(
    "call",
    [
        *(no_broker, no_broker_for_a_call, unknown_option),
        *(unknown_option_of_a_coroutine_client, wrong_type, missing_topic),
    ],
)
def test_tracebacks_of_public_calls_have_few_frames_of_odradek(
    cluster: FakeCluster, call: Callable[[FakeCluster], Any]
) -> None:
    with pytest.raises(KafkaError) as caught:
        call(cluster)
    error: BaseException | None = caught.value
    assert len(frames(error)) <= MOST, frames(error)
    while (error := error and (error.__cause__ or error.__context__)) is not None:
        assert len(frames(error)) <= MOST, frames(error)


def test_frames_of_callbacks_remain() -> None:
    def callback() -> None:
        raise NoBrokerAvailableError("gone", [], 0.0)

    def call(function: Callable[[], None]) -> None:
        function()

    inner = FunctionType(call.__code__, {"__name__": "odradek.inner"})
    with pytest.raises(KafkaError) as caught:
        inner(callback)
    shorten(caught.value)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_frames_of_callbacks_remain", "callback"]
