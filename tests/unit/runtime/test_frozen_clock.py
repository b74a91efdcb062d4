"""Test that clients work while and after a test freezes the clock, for example with freezegun."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.time_limits import HANG_S

import odradek
from odradek.runtime.system_clock import monotonic_clock, wall_clock

PROGRAM = """
import asyncio, time

real = time.monotonic, time.time, time.perf_counter
# As freezegun replaces them.
time.monotonic, time.time = (lambda: 7.0), (lambda: 1e9)
time.perf_counter = time.monotonic

import odradek

nowhere = {"bootstrap.servers": "127.0.0.1:1"}
made = [odradek.Producer(nowhere), odradek.Consumer(nowhere), odradek.Admin(nowhere)]


async def program():
    made.append(odradek.AsyncProducer(nowhere))


time.monotonic, time.time, time.perf_counter = real
asyncio.run(program())
made.append(odradek.Producer(nowhere))
for client in made:
    host = client._host
    began = host.now()
    assert abs(began - time.monotonic()) < 60, "the clock is frozen"
    assert abs(host.wall_clock() - time.time()) < 60, "the date is frozen"
    while host.now() == began:
        pass
print("it goes")
"""


def test_clients_work_if_their_modules_were_imported_while_time_was_frozen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.stdout == "it goes\n", done.stderr


def test_a_clock_that_is_not_frozen_is_used_directly() -> None:
    """A producer reads the clock for each record, so a Python function around it would be slow."""
    assert monotonic_clock() is time.perf_counter  # time-machine 2 changes time.monotonic
    assert abs(time.perf_counter() - time.monotonic()) < 1.0
    assert wall_clock() is time.time


FROZEN = """
import sys, time

import odradek
from odradek.compat import confluent_kafka
from odradek.serialization import RegistryUnreachableError, SchemaRegistryClient
from odradek.testing import FakeCluster

real = time.monotonic, time.perf_counter
for module in list(sys.modules.values()):  # as freezegun does
    for name, value in list(vars(module).items()):
        if value is real[0] or value is real[1]:
            setattr(module, name, lambda: 7.0)

url = {"schema.registry.url": "http://127.0.0.1:1", "default.api.timeout.ms": 500}
try:
    SchemaRegistryClient(url).get_subjects()
except RegistryUnreachableError:
    print("the registry")
with FakeCluster(topics={"t": 1}) as cluster:
    server = {"bootstrap.servers": cluster.bootstrap_servers}
    consumer = confluent_kafka.Consumer({**server, "group.id": "g"})
    consumer.subscribe(["t"])
    print(consumer.poll(0.5))
    consumer.close()
    producer = confluent_kafka.Producer(server)
    producer.produce("t", b"x")
    print(producer.flush(30))
"""


def test_calls_time_out_while_time_is_frozen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROZEN], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.stdout == "the registry\nNone\n0\n", done.stderr


def test_only_the_system_clock_and_modules_of_separate_processes_read_time_monotonic() -> None:
    own, found = Path(odradek.__file__).parent, set()
    for path in own.rglob("*.py"):
        if re.search(r"\btime\.monotonic\b(?!`)|from time import .*monotonic", path.read_text()):
            found.add(str(path.relative_to(own)))
    alone = {one for one in found if one.startswith("cli/")}
    assert found - alone == {"runtime/system_clock.py", "testing/brokers/keeper.py"}
