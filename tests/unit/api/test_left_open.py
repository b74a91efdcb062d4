"""Clients that nobody closes: dropped ones, and those that the program's end finds (R-HO-4)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.loopback_scene import PATIENCE, one_broker

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.testing.loopback import LOOPBACK

TP = TopicPartition("t", 0)


def program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    done.took = time.monotonic() - started  # type: ignore[attr-defined]
    return done


SENDS = """
import sys
from odradek import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
for number in range(1000):
    producer.send("t", str(number).encode())
"""


def written(servers: str) -> int:
    with Consumer(bootstrap_servers=servers) as consumer:
        return consumer.end_offsets([TP], PATIENCE)[TP]


def test_a_program_that_ends_without_close_delivers_everything() -> None:
    with one_broker() as (_, servers):
        done = program(SENDS, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert written(servers) == 1000


def test_what_was_lost_is_said_on_stderr_and_the_end_comes_in_time() -> None:
    gone = """
from odradek.simulation import SimulatedCluster
from odradek.testing.loopback import LoopbackServer
server = LoopbackServer()
server.__enter__()
cluster = server.call(lambda: SimulatedCluster(server, brokers=1, bootstrap_name=None))
server.call(lambda: cluster.create_topic("t", partitions=1))
from odradek import Producer
producer = Producer(bootstrap_servers=str(cluster.bootstrap_servers), close_timeout_ms=500)
producer.send("t", b"there").result(20)
server.call(lambda: cluster.crash(1))
for number in range(37):
    producer.send("t", b"lost")
"""
    done = program(gone)
    assert done.returncode == 0
    assert "37 records of Producer" in done.stderr
    assert "close.timeout.ms (0.5 s)" in done.stderr
    assert len(done.stderr.splitlines()) < 12
    assert "Traceback" not in done.stderr


OPEN_TRANSACTION = """
import sys
from odradek import Producer
producer = Producer(bootstrap_servers=sys.argv[1], transactional_id="x", **eval(sys.argv[3]))
producer.init_transactions()
producer.begin_transaction()
for number in range(1000):
    producer.send("t", b"%d" % number)
if sys.argv[2] == "acknowledged":
    producer.flush()
"""


@pytest.mark.parametrize("how", ["acknowledged", "held"])
def test_a_transaction_that_is_open_at_the_end_is_aborted_and_named(how: str) -> None:
    with one_broker() as (_, servers):
        done = program(OPEN_TRANSACTION, servers, how, "{}")
        assert done.returncode == 0
        assert "amid its transaction 'x': it was aborted, so none" in done.stderr
        assert "Traceback" not in done.stderr
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            last_stable = consumer.end_offsets([TP], PATIENCE)[TP]
        assert last_stable == written(servers), "the transaction is open"


def test_a_transaction_that_can_not_be_aborted_in_time_is_left_to_its_coordinator() -> None:
    with one_broker() as (_, servers):
        done = program(OPEN_TRANSACTION, servers, "acknowledged", "{'close_timeout_ms': 0}")
        assert done.returncode == 0
        assert "none of its records is committed" in done.stderr
        assert "60 s after its begin (transaction.timeout.ms)" in done.stderr


@pytest.mark.parametrize("raised", ["SystemExit(4)", "KeyboardInterrupt()"])
def test_what_a_callback_means_for_the_program_at_its_end_is_said(raised: str) -> None:
    sends = f"""
import sys
from odradek import Producer
options = dict(bootstrap_servers=sys.argv[1], linger_ms=60_000)
first, second = Producer(**options), Producer(**options)

def leave(future):
    raise {raised}

first.send("t", b"1").add_done_callback(leave)
for number in range(1000):
    second.send("t", b"2")
"""
    with one_broker() as (_, servers):
        done = program(sends, servers)
        assert f"raised {raised} while the program ended" in done.stderr
        assert written(servers) == 1001


def test_a_forked_child_that_ends_does_nothing() -> None:
    with one_broker() as (_, servers):
        child = SENDS + "\nimport os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n"
        done = program(child, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert written(servers) == 1000


def ours() -> tuple[int, int]:
    threads = sum(t.name == "odradek-io" for t in threading.enumerate())
    return threads, len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count is enough


def collected(before: tuple[int, int]) -> bool:
    until = time.monotonic() + PATIENCE
    while ours() > before and time.monotonic() < until:
        gc.collect()
    return ours() <= before


def test_dropped_producers_deliver_and_are_collected() -> None:
    with one_broker() as (_, servers):
        before = ours()

        def make_and_drop() -> None:
            for number in range(20):
                producer = Producer(bootstrap_servers=servers, linger_ms=60_000)
                producer.send("t", str(number).encode())
                del producer
            gc.collect()

        with pytest.warns(ResourceWarning, match=rf"unclosed Producer .*{Path(__file__).name}"):
            make_and_drop()
        assert collected(before)
        assert written(servers) == 20


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}, {"background": True}])
def test_a_dropped_consumer_is_collected(options: dict[str, Any]) -> None:
    with one_broker() as (_, servers):
        before = ours()
        made = [Consumer(bootstrap_servers=servers, **options)]
        consumer = made[0]
        if options.get("group_id"):
            consumer.subscribe(["t"], on_assigned=lambda consumer, partitions: None)
        else:
            consumer.assign([TP])
        consumer.poll(0.3)
        assert ours() > before
        del consumer
        with pytest.warns(ResourceWarning, match=rf"unclosed Consumer .*{Path(__file__).name}"):
            made.clear()
        assert collected(before)


def test_a_client_that_was_never_used_or_was_closed_is_dropped_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Producer(bootstrap_servers=f"{LOOPBACK}:1")
        Consumer(bootstrap_servers=f"{LOOPBACK}:1", group_id="g")
        with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"1")
        del producer
        gc.collect()
