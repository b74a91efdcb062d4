"""Test R-ID-1 on real brokers: a member whose process was stopped longer than its session.

Another member reads and commits in the meantime. The first member rejoins in its I/O thread, while
its program still holds earlier records.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import IO

import pytest
from tests.interop.conftest import OPTIONS

from odradek.admin import AlterConfigOp, ConfigResource
from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

SESSION = {"consumer.session.timeout.ms": "3000", "consumer.heartbeat.interval.ms": "1000"}
"""Broker-side settings of a KIP-848 group."""
SETTINGS: dict[str, dict[str, object]] = {
    "classic": {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}
PROGRAM = """\
import json, sys, time
import odradek

config, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer = odradek.Consumer(config)
removals = []

def note(event):
    if event.kind == "group" and event.fields["event"] == "removed":
        removals.append(event)

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, (removals, group.owned())
        time.sleep(0.05)

consumer.listen(note)
consumer.subscribe([topic])
records = []
while len(records) < 20:
    records += consumer.poll(1.0)
print("read", flush=True)
sys.stdin.readline()  # the process is stopped here
group = consumer._engine.group
until(lambda: removals and group.owned())
said, ends = {}, []

def tried(name, call):
    try:
        call()
        said[name] = "done"
    except odradek.KafkaError as error:
        said[name] = type(error).__name__

place = odradek.TopicPartition(topic, 0)
tried("record", lambda: consumer.commit(records[0]))
tried("by hand", lambda: consumer.commit({place: 3}))
tried("positions", consumer.commit)
tried("seek", lambda: consumer.seek(place, 1))
tried("pause", lambda: consumer.pause(place))
consumer.commit_async(records[1], lambda _, error: ends.append(type(error).__name__))
again = consumer.poll(20.0)
while not ends:
    consumer.poll(0.1)
said["async"] = ends[0]
said["begins at"] = again[0].offset
tried("an old record", lambda: consumer.commit(records[2]))
tried("a new record", lambda: consumer.commit(again[0]))
print(json.dumps(said), flush=True)
consumer.close()
"""


@pytest.fixture(scope="module")
def quick_groups(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared(OPTIONS)


def line(pipe: IO[str] | None) -> str:
    assert pipe is not None
    found = pipe.readline()
    assert found, "the program has ended"
    return found.strip()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_was_stopped_commits_no_older_offset(
    quick_groups: LocalCluster, topic: str, protocol: str
) -> None:
    quick_groups.create_topic(topic, partitions=1)
    servers = quick_groups.bootstrap_servers
    if protocol == "consumer":
        with Admin(bootstrap_servers=servers) as admin:
            changes = [AlterConfigOp(name, value) for name, value in SESSION.items()]
            admin.incremental_alter_configs({ConfigResource("GROUP", topic): changes})
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number)
    config = {
        "bootstrap.servers": servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **SETTINGS[protocol],
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(config), topic]
    place = TopicPartition(topic, 0)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stopped:
        try:
            assert line(stopped.stdout) == "read"
            os.kill(stopped.pid, signal.SIGSTOP)
            with Consumer(config) as other:  # `other` gets the partition after the session
                other.subscribe([topic])
                count = 0
                while count < 20:
                    count += len(other.poll(30.0))
                other.commit({place: 15})
            os.kill(stopped.pid, signal.SIGCONT)
            assert stopped.stdin is not None
            stopped.stdin.write("go on\n")
            stopped.stdin.flush()
            said = json.loads(line(stopped.stdout))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
            stopped.kill()
    refused = dict.fromkeys(
        ("record", "by hand", "positions", "async", "an old record"), "CommitFailedError"
    )
    moved = dict.fromkeys(("seek", "pause"), "IllegalStateError")
    assert said == {**refused, **moved, "begins at": 15, "a new record": "done"}
    with Consumer(config) as observer:
        found = observer.committed([place])[place]
    assert found is not None
    assert found.offset == 16
