"""Test clients that are never closed: garbage-collected or open at program exit (R-HO-4)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from operator import le
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S
from tests.unit.api.loopback_scene import PATIENCE, one_broker

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.runtime import assembly
from odradek.testing.fake.loopback import LOOPBACK

pytestmark = pytest.mark.slow  # most tests start a program
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


BROKER = """
from odradek.simulation import SimulatedCluster
from odradek.testing.fake.loopback import LoopbackServer
server = LoopbackServer()
server.__enter__()
cluster = server.call(lambda: SimulatedCluster(server, brokers=1, bootstrap_name=None))
server.call(lambda: cluster.create_topic("t", partitions=1))
from odradek import Producer
"""
SENDS = """
import sys
from odradek import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
for number in range(1000):
    producer.send("t", str(number).encode())
"""


def log_end_offset(servers: str) -> int:
    with Consumer(bootstrap_servers=servers) as consumer:
        return consumer.end_offsets([TP], PATIENCE)[TP]


def test_a_process_that_exits_without_close_delivers_all_records() -> None:
    with one_broker() as (_, servers):
        done = program(SENDS, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert log_end_offset(servers) == 1000


def test_exit_waits_for_running_delivery_callbacks() -> None:
    amid = """
import sys, threading, time
from odradek import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=50)
called, begun = [], threading.Event()
def on_delivery(error, metadata):
    begun.set()
    time.sleep(0.005)
    called.append(metadata.offset)
    if len(called) == 100:
        print("all")
for number in range(100):
    producer.send("t", b"", on_delivery=on_delivery)
begun.wait(60)
"""
    with one_broker() as (_, servers):
        done = program(amid, servers)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all\n", "")


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


REFUSED = """
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse
)
from odradek.simulation.brokers.broker_handlers import BY_KEY
work, which = BY_KEY[0], {which}
def handler(broker, body, version, reply):
    BY_KEY[0] = work
    [topic] = body.topic_data
    [partition] = topic.partition_data
    refused = [BatchIndexAndErrorMessage(n, "bad record") for n in which]
    answer = PartitionProduceResponse(partition.index, 87, -1, record_errors=refused)
    return ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
BY_KEY[0] = handler
"""
SENDS_FIVE = """
producer = Producer(bootstrap_servers=str(cluster.bootstrap_servers), linger_ms=60_000)
for number in range(5):
    producer.send("t", str(number).encode())
"""


@pytest.mark.parametrize(("which", "told"), [([], "5 records"), ([0, 3], "2 records")])
def test_records_that_a_broker_rejects_at_exit_are_counted_individually(
    which: list[int], told: str
) -> None:
    """KIP-467: if some records of a batch are rejected, the others are written."""
    done = program(REFUSED.replace("{which}", str(which)) + BROKER + SENDS_FIVE)
    assert done.returncode == 0
    assert done.stderr.startswith(f"odradek: {told} were lost, because Producer"), done.stderr
    assert "too short" not in done.stderr
    assert "INVALID_RECORD" in done.stderr


@pytest.mark.parametrize("how", ["acknowledged", "held"])
def test_an_open_transaction_is_aborted_and_reported_at_exit(how: str) -> None:
    with one_broker() as (_, servers):
        done = program(OPEN_TRANSACTION, servers, how, "{}")
        assert done.returncode == 0
        assert "with transaction 'x' still open: it was aborted, so none" in done.stderr
        assert "Traceback" not in done.stderr
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            last_stable = consumer.end_offsets([TP], PATIENCE)[TP]
        assert last_stable == log_end_offset(servers), "the transaction is open"


def test_a_transaction_that_cannot_be_aborted_in_time_is_left_to_time_out() -> None:
    with one_broker() as (_, servers):
        done = program(OPEN_TRANSACTION, servers, "acknowledged", "{'close_timeout_ms': 0}")
        assert done.returncode == 0
        assert "none of its records is committed" in done.stderr
        assert "60 s after it began (transaction.timeout.ms)" in done.stderr


@pytest.mark.parametrize("raised", ["SystemExit(4)", "KeyboardInterrupt()"])
def test_an_exit_request_from_a_callback_at_exit_is_reported(raised: str) -> None:
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
        assert f"raised {raised} after the last call, so no call could raise it" in done.stderr
        assert log_end_offset(servers) == 1001


def test_the_exit_of_a_forked_child_does_not_touch_the_parents_producer() -> None:
    with one_broker() as (_, servers):
        # Since 3.12 Python warns if a process with threads forks.
        quiet = "import os, warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n"
        child = f"{SENDS}\n{quiet}pid = os.fork()\nif pid: os.waitpid(pid, 0)\n"
        done = program(child, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert log_end_offset(servers) == 1000


CHILDREN = """
import concurrent.futures, multiprocessing, sys
from odradek import Producer

def make():
    servers = sys.argv[1]
    return Producer(bootstrap_servers=servers, linger_ms=60_000, delivery_timeout_ms=120_000)

if __name__ == "__mp_main__" and sys.argv[2] == "made early":
    kept = make()

def work():
    if sys.argv[2] != "made early":
        globals()["kept"] = make()
    send(kept)

def send(producer):
    for number in range(1000):
        producer.send("t", b"%d" % number)

def run(method, target=work):
    child = multiprocessing.get_context(method).Process(target=target)
    child.start()
    child.join()
    assert child.exitcode == 0

if __name__ == "__main__":
    how, fork = sys.argv[2], multiprocessing.get_context("fork")
    if how == "executor":
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as executor:
            executor.submit(work).result()
    elif how == "pool":
        pool = fork.Pool(1)
        pool.apply(work)
        pool.close()
        pool.join()
    elif how == "made early":
        # From 3.14 on the server makes it, before it forks.
        run("spawn" if sys.version_info >= (3, 14) else "forkserver")
    elif how == "parent":
        parents = make()
        send(parents)
        run("fork")
        run("fork", target=print)
    else:
        run(how)
"""


@pytest.mark.parametrize(
    "how", ["fork", "forkserver", "spawn", "executor", "pool", "made early", "parent"]
)
def test_a_multiprocessing_child_delivers_all_records(how: str, tmp_path: Path) -> None:
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    with one_broker() as (_, servers):
        command = [sys.executable, str(script), servers, how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert log_end_offset(servers) == (2000 if how == "parent" else 1000)


HANDLER = """
import atexit, sys
from odradek import Producer
@atexit.register
def sends():
    for number in range(1000):
        producer.send("t", b"%d" % number, partition=0)
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
producer.send("t", b"first")
"""


def test_records_sent_by_an_exit_handler_are_delivered() -> None:
    """Handlers registered before the import of odradek run too late, as a later test shows."""
    with one_broker() as (_, servers):
        done = program(HANDLER, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert log_end_offset(servers) == 1001


LOSES = """
def loses():
    server.call(lambda: cluster.crash(1))
    for number in range(37):
        producer.send("t", b"lost")
"""
AT_EXIT = "import atexit\natexit.register(loses)\n"
SHORT = """
producer = Producer(bootstrap_servers=str(cluster.bootstrap_servers), close_timeout_ms=500)
producer.send("t", b"there").result(20)
"""


@pytest.mark.parametrize(
    "text", [LOSES + BROKER + SHORT + "loses()", LOSES + BROKER + AT_EXIT + SHORT]
)
def test_lost_records_are_reported_on_stderr_within_the_close_timeout(text: str) -> None:
    done = program(text)
    assert done.returncode == 0
    assert done.stderr.count("37 records were lost, because Producer") == 1
    assert "close.timeout.ms (0.5 s)" in done.stderr
    assert len(done.stderr.splitlines()) < 12
    assert "Traceback" not in done.stderr


def test_a_producer_rejects_records_after_the_exit_handler_has_run() -> None:
    late = """
server.call(lambda: cluster.crash(1))
producer.send("t", b"lost")
"""
    done = program(LOSES + AT_EXIT + BROKER + SHORT + late)
    assert done.stderr.count("1 record was lost, because Producer") == 1
    assert "accepts no more records, because the program is ending" in done.stderr


def test_a_finalizer_after_exit_gets_client_closed_error() -> None:
    late = """
class Late:
    def __del__(self):
        for topic in ("t", "never seen"):
            try:
                producer.send(topic, b"late")
            except Exception as error:
                print(type(error).__name__)
kept = Late()
"""
    with one_broker() as (_, servers):
        done = program(SENDS + late, servers)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == ["ClientClosedError"] * 2
        assert log_end_offset(servers) == 1000


def threads_and_descriptors() -> tuple[int, int]:
    threads = sum(t.name.startswith("odradek-") for t in threading.enumerate())
    return threads, len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count is enough


def collected(before: tuple[int, int]) -> bool:
    """Wait until the clients' threads and sockets are gone; return whether they are.

    The garbage collector holds the GIL, so without pauses the broker and the threads that deliver
    records would hardly run.
    """
    until = time.monotonic() + HANG_S
    while not (gone := all(map(le, threads_and_descriptors(), before))):
        if time.monotonic() >= until:
            break
        begun = time.monotonic()
        gc.collect()
        time.sleep(max(0.01, 4 * (time.monotonic() - begun)))
    return gone


def test_garbage_collected_producers_deliver_their_records() -> None:
    with one_broker() as (_, servers):
        before = threads_and_descriptors()

        def make_and_drop() -> None:
            for number in range(20):
                producer = Producer(
                    bootstrap_servers=servers, linger_ms=60_000, close_timeout_ms=120_000
                )
                producer.send("t", str(number).encode())
                del producer
            gc.collect()

        with pytest.warns(ResourceWarning, match=rf"unclosed Producer .*{Path(__file__).name}"):
            make_and_drop()
        assert collected(before)
        assert log_end_offset(servers) == 20


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}, {"background": True}])
def test_a_garbage_collected_consumer_frees_threads_and_sockets(options: dict[str, Any]) -> None:
    with one_broker() as (_, servers):
        before = threads_and_descriptors()
        made = [Consumer(bootstrap_servers=servers, **options)]
        consumer = made[0]
        if options.get("group_id"):
            consumer.subscribe(["t"], on_assigned=lambda consumer, partitions: None)
        else:
            consumer.assign([TP])
        consumer.poll(0.3)
        assert threads_and_descriptors() > before
        del consumer
        with pytest.warns(ResourceWarning, match=rf"unclosed Consumer .*{Path(__file__).name}"):
            made.clear()
        assert collected(before)


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
def test_a_garbage_collected_client_closes_its_events_file_and_its_events_producer(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "EVENTS_TIMEOUT", HANG_S)  # a busy machine may take over 1 s
    calls: dict[str, tuple[type[Any], Callable[[Any], object]]] = {
        "producer": (Producer, lambda producer: producer.send("t", b"").result(PATIENCE)),
        "consumer": (Consumer, lambda consumer: consumer.partitions_for("t")),
        "admin": (Admin, lambda admin: admin.list_topics(PATIENCE)),
    }
    kind, call = calls[client]
    with one_broker() as (_, servers):
        before = threads_and_descriptors()
        made = [kind(bootstrap_servers=servers, events_dir=str(tmp_path), events_topic="t")]
        call(made[0])
        assert list(tmp_path.iterdir())
        with pytest.warns(ResourceWarning, match="unclosed"):
            made.clear()
        assert collected(before)
        assert log_end_offset(servers) > (client == "producer")  # events were published


def test_garbage_collecting_an_unused_or_closed_client_causes_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Producer(bootstrap_servers=f"{LOOPBACK}:1")
        Consumer(bootstrap_servers=f"{LOOPBACK}:1", group_id="g")
        with one_broker() as (_, servers), Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"1")
        del producer
        gc.collect()


FINALIZER = """
import atexit, sys, threading, time

def stop_with_lock():  # as a thread that sends a record when Python stops it
    if used == "locked":
        thread = threading.Thread(target=kept.client._engine.accumulator.lock.acquire)
        thread.start()
        thread.join()

atexit.register(stop_with_lock)  # before the client's own, so that it runs after it

from odradek import Consumer, KafkaError, Producer
from odradek.compat import confluent_kafka

class Wrapper:
    def __init__(self, client, call):
        self.client, self.call = client, call

    def __del__(self):
        begun = time.monotonic()
        try:
            outcome = self.call(self.client)
        except KafkaError as error:
            outcome = f"{type(error).__name__}: {error}"
        took = time.monotonic() - begun
        sys.stdout.write(f"{sys.is_finalizing()} {took < 1.0} {outcome}\\n")
        sys.stdout.flush()

servers, used, call = sys.argv[1:]
if call == "reports":
    client = confluent_kafka.Producer({"bootstrap.servers": servers})
elif call in ("flush", "close", "partitions_for"):
    client = Producer(bootstrap_servers=servers)
    if used != "unused":
        client.send("t", b"x")
else:
    client = Consumer(bootstrap_servers=servers, group_id="g")
    if used == "used":
        client.subscribe(["t"])
        client.poll(2.0)
CALLS = {
    "flush": lambda c: c.flush(30.0),
    "close": lambda c: c.close(),
    "partitions_for": lambda c: c.partitions_for("missing", 30.0),
    "leave": lambda c: c.close(30.0),
    "poll": lambda c: c.poll(30.0),
    "reports": lambda c: c.poll(),
}
kept = Wrapper(client, CALLS[call])
del client
"""


ENDED = "ClientClosedError: Python is shutting down"


@pytest.mark.parametrize(
    ("used", "call", "outcome"),
    [
        ("used", "flush", "0"),
        ("used", "close", "None"),
        ("used", "leave", "None"),
        ("used", "poll", ENDED),
        ("locked", "flush", "0"),
        ("locked", "close", "None"),
        ("unused", "reports", "0"),
        ("unused", "flush", "0"),
        ("unused", "partitions_for", ENDED),
        ("unused", "leave", "None"),
    ],
)
def test_a_call_in_a_finalizer_does_not_block_on_a_stopped_thread(
    used: str, call: str, outcome: str
) -> None:
    """Python stops daemon threads before it clears modules, so nothing could end a wait then."""
    with one_broker() as (_, servers):
        done = program(FINALIZER, servers, used, call)
        assert done.returncode == 0
        assert done.stdout.startswith(f"True True {outcome}"), done.stdout + done.stderr
        assert log_end_offset(servers) == (used != "unused" and call in ("flush", "close"))
