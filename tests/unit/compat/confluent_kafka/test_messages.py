"""Messages of records: the garbage collector sees those that something was put into."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from odradek.clients.consumer.records import ConsumerRecord
from odradek.compat.batch_positions import Notes, build_reports
from odradek.compat.confluent_kafka.message import Message, messages_of
from odradek.record import KERNEL

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


def test_the_collector_sees_a_report_once_it_may_refer_back() -> None:
    """A thousand at a time are let go before it could find anything in them."""
    given = Notes()
    given.add((0, 9.0, 55, b"k", b"v", print), 2)
    (report,) = build_reports(Message, 0, "t", 3, (70, -1), None, 10.0, given)
    if KERNEL == "native":
        assert not any(map(gc.is_tracked, (report, report._record, report._more)))
    report.set_value([report])
    assert gc.is_tracked(report)
