"""Messages of calls that time out name the call and the address, and contain no false claims."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.common.errors import KafkaError, KafkaTimeoutError

P0 = TopicPartition("t", 0)
SECONDS = 2.0
MISNUMBERED = re.compile(r"\b1 (records|batches|partitions|brokers|attempts|rows|times|topics)\b")
INTERNAL = re.compile(r"checking_api_versions|\bround \d|\bNone\b|object at 0x|<\w+ \w+>|\{\w*\}")
CLAIMS = ("goes on trying", "still being sent", "are being sent", "It goes on")


def producer(stage: Stage, **config: Any) -> Producer:
    return stage.producer(linger_ms=0, max_block_ms=2000, **config)


def transactional(stage: Stage) -> Producer:
    return producer(stage, transactional_id="x")


def consumer(stage: Stage) -> Consumer:
    made = stage.consumer(group_id="g", default_api_timeout_ms=2000)
    made.assign([P0])
    return made


def admin(stage: Stage) -> Admin:
    return stage.client(Admin, default_api_timeout_ms=2000)


def killed(stage: Stage) -> None:
    """Kill the only broker, which then refuses connections."""
    stage.cluster.kill(1)


def silent(stage: Stage) -> None:
    """Let the only broker accept bytes without responding."""
    stage.cluster.pause(1)


CALLS: dict[str, tuple[Callable[[Stage], Any], Callable[[Any], object]]] = {
    "send": (producer, lambda p: p.send("t", b"x", partition=0).result(SECONDS)),
    "flush": (producer, lambda p: (p.send("t", b"x", partition=0), p.flush(SECONDS))),
    "close": (producer, lambda p: (p.send("t", b"x", partition=0), p.close(SECONDS))),
    "partitions_for": (producer, lambda p: p.partitions_for("another", SECONDS)),
    "init_transactions": (transactional, lambda p: p.init_transactions(SECONDS)),
    "position": (consumer, lambda c: c.position(P0, SECONDS)),
    "committed": (consumer, lambda c: c.committed([P0], SECONDS)),
    "commit": (consumer, lambda c: c.commit({P0: 1}, timeout=SECONDS)),
    "beginning_offsets": (consumer, lambda c: c.beginning_offsets([P0], SECONDS)),
    "list_topics": (consumer, lambda c: c.list_topics(SECONDS)),
    "describe_cluster": (admin, lambda a: a.describe_cluster(timeout=SECONDS)),
    "create_topics": (admin, lambda a: a.create_topics([NewTopic("u", 1)], timeout=SECONDS)),
    "list_offsets": (admin, lambda a: a.list_offsets({P0: "LATEST"}, timeout=SECONDS)),
    "list_groups": (admin, lambda a: a.list_groups(timeout=SECONDS)),
}


def texts(error: BaseException) -> str:
    """Return the error as a program prints it, with its notes and those of its causes."""
    found = [str(error), *getattr(error, "__notes__", ())]
    if error.__cause__ is not None:
        found.append(texts(error.__cause__))
    return "\n".join(found)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("happens", [killed, silent])
@pytest.mark.parametrize("known", [True, False])
def test_a_call_that_times_out_names_the_call_and_the_address(
    call: str, happens: Callable[[Stage], None], known: bool
) -> None:
    """With `known`, the client has reached the cluster before."""
    stage = Stage(brokers=1)
    make, act = CALLS[call]
    client = make(stage)
    if known:
        client.partitions_for("t", 10) if not isinstance(client, Admin) else (
            client.describe_cluster(timeout=10)
        )
    happens(stage)
    stage.world.advance(0.2)
    with pytest.raises(KafkaTimeoutError) as caught:
        act(client)
    said = texts(caught.value)
    assert str(caught.value.args[0]).strip() == str(caught.value.args[0])
    assert not MISNUMBERED.search(said), said
    assert not INTERNAL.search(said), said
    assert not any(claim in said for claim in CLAIMS), said
    assert ":9092" in said, said  # the address of the attempt
    assert len(str(caught.value).splitlines()[0]) < 600, said
    if not client._calls.closed:
        try:
            client.close(timeout=0)
        except KafkaError as error:
            said = texts(error)
            assert not MISNUMBERED.search(said), said
            assert not any(claim in said for claim in CLAIMS), said


GONE = TopicPartition("nowhere", 0)
REFUSED: dict[str, tuple[Callable[[Stage], Any], Callable[[Any], object]]] = {
    "partitions_for": (consumer, lambda c: c.partitions_for("nowhere", SECONDS)),
    "describe": (consumer, lambda c: c.describe(["nowhere"], SECONDS)),
    "end_offsets": (consumer, lambda c: c.end_offsets([GONE], SECONDS)),
    "commit": (consumer, lambda c: c.commit({GONE: 1}, timeout=SECONDS)),
    "partitions_for of a producer": (producer, lambda p: p.partitions_for("nowhere", SECONDS)),
    "warm": (producer, lambda p: p.warm("nowhere", SECONDS)),
    "send_many": (producer, lambda p: p.send_many("t", [b"x"], partitions=[9])),
    "describe_topics": (admin, lambda a: a.describe_topics(["nowhere", "t"], timeout=SECONDS)),
    "list_offsets": (admin, lambda a: a.list_offsets({GONE: "LATEST"}, timeout=SECONDS)),
}


@pytest.mark.parametrize("call", REFUSED)
def test_an_error_contains_no_other_traceback(call: str) -> None:
    """Earlier errors within the client aren't shown as its cause."""
    make, act = REFUSED[call]
    client = make(Stage(brokers=1))
    with pytest.raises(KafkaError) as caught:
        act(client)
    said = "".join(traceback.format_exception(caught.value))
    assert said.count("Traceback (most recent call last)") == 1, said
    assert "During handling" not in said
