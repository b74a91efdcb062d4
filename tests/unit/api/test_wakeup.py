"""Test `consumer.wakeup()` in other threads and signal handlers, with real sockets."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from tests.unit.api.loopback_scene import PATIENCE, fill, one_broker
from tests.unit.api.test_threads_and_signals import ALONE, GROUP, consumer_of, on_signal
from tests.unit.runtime.test_fork import in_child

from odradek.common.errors import ClientForkedError, WakeupError

KINDS = pytest.mark.parametrize("options", [GROUP, ALONE, {**ALONE, "background": True}])


@KINDS
def test_wakeup_in_another_thread_ends_poll(options: dict[str, Any]) -> None:
    with one_broker() as (_, servers):
        fill(servers, 10)
        with consumer_of(servers, options) as consumer:
            for _ in range(20):
                waker = threading.Thread(target=consumer.wakeup)
                waker.start()
                with pytest.raises(WakeupError):
                    while True:
                        consumer.poll(PATIENCE)
                waker.join()
            fill(servers, 10)
            assert consumer.poll(PATIENCE)


@KINDS
def test_wakeup_in_a_signal_handler_ends_a_poll_loop_in_any_state(options: dict[str, Any]) -> None:
    main = threading.main_thread().ident
    assert main is not None
    with one_broker() as (_, servers):
        fill(servers, 5)
        with consumer_of(servers, options) as consumer, on_signal(consumer.wakeup) as seen:
            for asleep in (False, True):
                with pytest.raises(WakeupError):
                    for n, _ in enumerate(consumer):
                        if not asleep and n == 2:
                            signal.raise_signal(signal.SIGUSR1)
                        if asleep and n == 1:  # after two more records the loop waits
                            timer = threading.Timer(
                                0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1)
                            )
                            timer.start()
                assert len(seen) == 1 + asleep
            with consumer._host.lock:  # while the client holds its lock
                signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(WakeupError):
                consumer.poll(PATIENCE)
            fill(servers, 1)
            assert len(consumer.poll(PATIENCE)) == 1


def test_wakeup_in_a_forked_child_raises() -> None:
    with one_broker() as (_, servers), consumer_of(servers, GROUP) as consumer:
        consumer.poll(0.1)

        def refused() -> None:
            with pytest.raises(ClientForkedError):
                consumer.wakeup()

        in_child(refused)
