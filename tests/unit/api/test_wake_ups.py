"""R-HO-6: test that a call that makes records available ends another thread's `poll`.

`tests/simulation/test_wake_ups.py` tests all pairs of calls in virtual time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.api.loopback_scene import fill, one_broker

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 5
WAIT = 20.0
HELD = 25_000
"""Value of `fetch.max.wait.ms`; fetch responses arrive after the timeout of `poll`."""


def paused(consumer: Consumer) -> None:
    consumer.assign([TP])
    consumer.pause(TP)


def at_the_end(consumer: Consumer) -> None:
    consumer.assign([TP])
    left = RECORDS
    while left:
        left -= len(consumer.poll(WAIT))


ENABLING: dict[str, tuple[Callable[[Consumer], None], Callable[[Consumer], None]]] = {
    "resume": (paused, lambda consumer: consumer.resume(TP)),
    "seek": (at_the_end, lambda consumer: consumer.seek(TP, 0)),
    "seek_to_beginning": (at_the_end, lambda consumer: consumer.seek_to_beginning([TP])),
    "assign": (paused, lambda consumer: consumer.assign({OTHER: 0, TP: 0})),
}


@pytest.mark.parametrize("enabling", ENABLING)
@pytest.mark.parametrize("background", [False, True])
def test_a_call_in_another_thread_ends_a_waiting_poll(background: bool, enabling: str) -> None:
    begin, call = ENABLING[enabling]
    config: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": HELD}
    with one_broker(partitions=2) as (_, servers):
        fill(servers, RECORDS)
        with Consumer(bootstrap_servers=servers, background=background, **config) as consumer:
            begin(consumer)
            found: list[Any] = []
            reader = threading.Thread(target=lambda: found.extend(consumer.poll(WAIT)))
            reader.start()
            while not any("records" in line for line, _ in consumer._engine.waits()):
                assert reader.is_alive()
                time.sleep(0.01)  # other threads can run during the pause
            call(consumer)
            if enabling == "assign":
                consumer.resume(TP)
            reader.join()
            assert [record.offset for record in found][:1] == [0]
