"""Test that messages in reference cycles are garbage-collected."""

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


class Held(Exception):  # noqa: N818 - a class that any setter accepts
    """An application's object that refers to the message that it is in."""

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
def test_a_value_that_refers_to_its_message_is_garbage_collected(
    put: Callable[[Any, Any], object],
) -> None:
    def cycle() -> ref[Held]:
        [message] = messages_of([RECORD])
        held = Held()
        held.message = message
        put(message, held)
        return ref(held)

    found = cycle()
    gc.collect()
    assert found() is None


def test_a_delivery_report_is_tracked_by_the_garbage_collector_only_after_a_change() -> None:
    """The garbage collector needn't visit thousands of untracked reports."""
    given = Notes()
    given.add((0, 9.0, 55, b"k", b"v", print), 2)
    (report,) = build_reports(Message, 0, "t", 3, (70, -1), None, 10.0, given)
    if KERNEL == "native":
        assert not any(map(gc.is_tracked, (report, report._record, report._more)))
    report.set_value([report])
    assert gc.is_tracked(report)
