"""R-IN-3 as a property: brokers that put control characters into any text of any answer.

Not one of them is found in a log record, an error, an event, what `explain()` says, or the words of
the command line; and no client ends by it with an internal error.
"""

from __future__ import annotations

import copy
import logging
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.volume import some

from odradek.api.admin import Admin
from odradek.api.base import Client, on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.cli.brokers.broker_api_versions import as_text
from odradek.cli.explain.explanation_text import trouble
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import ClientBrokenError, KafkaError
from odradek.common.events import Event, event_line
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message, Struct, field_names
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import BrokerSession

HOSTILE = "\x1b]0;owned\x07\x9b2J\r\nINFO odradek: all is well\x7f\u202e\u2066\u2028"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|\nINFO")


class Poison:
    """Changes texts of answers: all of some fields, as a seed says."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._chosen: dict[tuple[str, str], bool] = {}
        self.changed: set[tuple[str, str]] = set()

    def of(self, message: Message) -> Message:
        found = copy.deepcopy(message)
        self._walk(found)
        return found

    def _walk(self, value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                self._walk(one)
        if not isinstance(value, Struct):
            return
        for name in field_names(type(value)):
            inner = getattr(value, name)
            key = (type(value).__name__, name)
            words = isinstance(inner, str) or name == "error_message"
            if words and self._choose(key):
                setattr(value, name, f"{inner or 'said'}{HOSTILE}")
                self.changed.add(key)
            elif isinstance(inner, list) and inner and isinstance(inner[0], str):
                if self._choose(key):
                    inner[:] = [one + HOSTILE for one in inner]
                    self.changed.add(key)
            else:
                self._walk(inner)

    def _choose(self, key: tuple[str, str]) -> bool:
        if key not in self._chosen:
            self._chosen[key] = self._rng.random() < 0.3 or "error" in key[1]
        return self._chosen[key]


def told(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        assert not isinstance(error, ClientBrokenError), error
        if isinstance(error, KafkaError):
            yield str(error)
        yield repr(error)
        error = error.__cause__ or error.__context__


def tried(texts: list[str], client: Client[Any], *calls: Callable[[], Any]) -> None:
    for call in calls:
        try:
            call()
        except KafkaError as error:
            texts += told(error)
        picture = client.explain()
        texts += [str(picture), str(picture.to_dict())]
    client.close(1.0)


def reach_in_words(admin: Admin) -> list[str]:
    found = admin.describe_reachability(["t", "absent"])
    return [*trouble(found, admin.explain()), *(str(a.error) for a in found.addresses)]


@pytest.mark.parametrize("seed", some(range(24), 3))
def test_no_text_of_a_broker_steers_a_terminal_or_forges_a_line(
    seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "odradek")
    texts: list[str] = []
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", partitions=2)
    poison, usual = Poison(seed), BrokerSession.answer

    def answer(self: BrokerSession, request: Any, response: Message | None, version: int) -> None:
        usual(self, request, response if response is None else poison.of(response), version)

    monkeypatch.setattr(BrokerSession, "answer", answer)

    def heard(event: Event) -> None:
        texts.append(str(event))
        texts.append(event_line(event, 0.0, "h", 1, "c").decode().rstrip("\n"))

    given: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "default_api_timeout_ms": 4000,
    }
    admin = on_host(world.host("admin"), Admin, **given)
    admin.listen(heard)
    tried(
        texts,
        admin,
        lambda: admin.describe_cluster(),
        lambda: admin.create_topics([NewTopic("t", 1)]),
        lambda: admin.create_topics([NewTopic("x", 0)]),
        lambda: admin.delete_topics(["absent"]),
        lambda: admin.describe_topics(["t", "absent"]),
        lambda: texts.extend(as_text(one) for one in admin.describe_api_versions()),
        lambda: texts.extend(reach_in_words(admin)),
    )
    producer = on_host(
        world.host("producer"),
        Producer,
        bootstrap_servers=cluster.bootstrap_servers,
        max_block_ms=3000,
        delivery_timeout_ms=4000,
        request_timeout_ms=3000,
    )
    producer.listen(heard)
    tried(texts, producer, lambda: producer.send("t", b"v").result(5.0))
    for protocol in ("classic", "consumer"):
        consumer = on_host(
            world.host(protocol), Consumer, group_id=protocol, group_protocol=protocol, **given
        )
        consumer.listen(heard)
        consumer.subscribe(["t"])
        tried(
            texts,
            consumer,
            *[partial(consumer.poll, 1.0)] * 4,
            partial(consumer.commit, {TopicPartition("t", 0): 0}),
            partial(consumer.committed, [TopicPartition("t", 0)]),
            consumer.list_topics,
        )
    assert poison.changed
    texts += [record.getMessage() for record in caplog.records]
    assert len(texts) > 20
    for text in texts:
        assert not UNSAFE.search(text), ascii(text)
