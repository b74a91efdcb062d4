"""Messages of records: the garbage collector sees those that something was put into."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from odradek.clients.consumer.records import ConsumerRecord
from odradek.compat.confluent_kafka.message import Message, messages_of

RECORD = ConsumerRecord("t", 0, 1, 2, 0, b"key", b"value", (("a", b"b"),), -1)


class Held(Exception):  # noqa: N818 - it is put wherever anything may be
    """Something of the program's."""

    message: Message


@pytest.mark.parametrize(
    "put",
    [
        lambda message, held: message.set_key(held),
        lambda message, held: message.set_value(held),
        lambda message, held: message.set_headers([("a", held)]),
        lambda message, held: message.headers().append(("a", held)),
        lambda message, held: message.set_error(held),
    ],
)
def test_what_refers_back_to_its_message_is_let_go(put: Callable[[Any, Any], object]) -> None:
    def cycle() -> ref[Held]:
        [message] = messages_of([RECORD])
        held = Held()
        held.message = message
        put(message, held)
        return ref(held)

    found = cycle()
    gc.collect()
    assert found() is None
