"""Run `odradek cluster start --simulated` as a process; malformed requests must not harm it."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.admin_commands import run

from odradek import Producer
from odradek.protocol.headers import encode_request
from odradek.protocol.message import Request
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.testing import FakeCluster

COMMAND = Path(sys.executable).parent / "odradek"
PATIENCE = 60.0
MOST_MORE_KB = 400 << 10
"""Limit for the additional memory of all attacks; the server's own limits add up to less."""


class Process(NamedTuple):
    told: dict[str, Any]
    pid: int
    popen: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.told["bootstrap_servers"].split(":")
        return host, int(port)

    def kilobytes(self) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    def works(self) -> None:
        servers = self.told["bootstrap_servers"]
        # A process that gets no processor time for ten seconds is not an unreachable cluster.
        patient = {"bootstrap.timeout.ms": int(PATIENCE * 1000)}
        with Producer({"bootstrap.servers": servers, "linger.ms": 0, **patient}) as producer:
            producer.send("flights", b"JFK", partition=0).result(timeout=PATIENCE)


@contextmanager
def started(*words: str) -> Iterator[Process]:
    command = [str(COMMAND), "cluster", "start", "--simulated", "--port", "0", "--json", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        try:
            assert popen.stdout is not None
            yield Process(json.loads(popen.stdout.readline()), popen.pid, popen)
        finally:
            popen.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_process_runs_until_a_signal(number: signal.Signals, status: int) -> None:
    with started("--brokers", "2", "--topics", "flights:3,one") as process:
        assert [broker["id"] for broker in process.told["brokers"]] == [1, 2]
        process.works()
        process.popen.send_signal(number)
        assert process.popen.wait(PATIENCE) == status
        assert process.popen.stderr is not None
        assert process.popen.stderr.read() == ""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            "--simulated --version 4.3",
            2,
            "simulated brokers don't support --version; leave out --simulated",
        ),
        ("--simulated --security SSL --acls", 2, "simulated brokers don't support --acls"),
        ("--simulated --topics a:x", 2, "'a:x': partitions must be a number"),
        ("--topics a", 2, "--topics needs --simulated"),
    ],
)
def test_invalid_command_lines_exit_with_2_and_a_reason(words: str, status: int, said: str) -> None:
    code, out, err = run("cluster", "start", *words.split())
    assert (code, out) == (status, "")
    assert said in err


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, out, err = run("cluster", "start", "--simulated", "--port", port)
    assert (code, out) == (1, "")
    assert "is in use by another program (perhaps other brokers); use --port 0" in err


def test_starting_takes_little_processor_time() -> None:
    """Measure processor time (the machine may be busy), without the interpreter's start."""
    taken = []
    for _ in range(5):
        begin = time.process_time()
        with FakeCluster(topics=["flights:12"]):
            taken.append(time.process_time() - begin)
    assert min(taken) < 0.2


# Hostile clients


def frame(message: Request[Any], version: int, correlation: int = 1) -> bytes:
    return b"".join(encode_request(message, version, correlation, "hostile"))


def send(address: tuple[str, int], data: bytes, *, read: bool = False) -> None:
    with socket.create_connection(address, PATIENCE) as sock, suppress(OSError):
        sock.sendall(data)
        if read:
            sock.settimeout(0.2)
            sock.recv(1 << 16)


def garbage(address: tuple[str, int]) -> None:
    for n in range(200):
        send(address, os.urandom(n * 7))
    send(address, b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", read=True)
    send(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(512), read=True)
    good = frame(ApiVersionsRequest(), 3)
    for n in range(len(good)):
        send(address, good[:n])
        send(address, good[:n] + os.urandom(len(good) - n), read=n % 8 == 0)
    for key in range(100):
        for version in (0, 9, 99):
            send(address, struct.pack(">ihhihq", 20, key, version, 1, -1, 0))


def huge_lengths(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        for length in (0, -1, 2**31 - 1, 1 << 30, 17 << 20, 16 << 20) * 20:
            sock = stack.enter_context(socket.create_connection(address, PATIENCE))
            with suppress(OSError):
                sock.sendall(struct.pack(">i", length) + bytes(1 << 16))


def half_frames(address: tuple[str, int]) -> None:
    """Send nearly 16 MiB of a Produce request on each of forty connections."""
    with ExitStack() as stack:
        for _ in range(40):
            sock = stack.enter_context(socket.create_connection(address, PATIENCE))
            with suppress(OSError):
                sock.sendall(struct.pack(">ihh", 16 << 20, 0, 9) + bytes(15 << 20))


def connections(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        for _ in range(600):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(1.0)
            with suppress(OSError):
                sock.connect(address)


def unread_answers(address: tuple[str, int]) -> None:
    """Send many requests and never read their responses."""
    ask = frame(MetadataRequest(topics=[MetadataRequestTopic(name="t" * 200)] * 1000), 9)
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.create_connection(address, PATIENCE))
            sock.setblocking(False)
            with suppress(OSError):
                while True:
                    sock.send(ask)


def many_topics(address: tuple[str, int]) -> None:
    for n in range(30):
        topics = [CreatableTopic(f"hostile-{n}-{k}", 1, 1) for k in range(1000)]
        send(address, frame(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5))
    topics = [CreatableTopic("hostile", 2**31 - 1, 1)]
    send(address, frame(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5), read=True)
    names = [MetadataRequestTopic(name=f"auto-{k}") for k in range(20_000)]
    send(address, frame(MetadataRequest(topics=names), 9), read=True)


def many_members(address: tuple[str, int]) -> None:
    send(address, frame(FindCoordinatorRequest(key="g", key_type=0), 2), read=True)
    for n in range(2400):
        join = JoinGroupRequest(f"group-{n}", 600_000, 600_000, protocol_type="consumer")
        join.protocols = [JoinGroupRequestProtocol("range", bytes(40_000))]
        send(address, frame(join, 2))


def long_polls(address: tuple[str, int]) -> None:
    topics = [FetchTopic("flights", partitions=[FetchPartition(0, fetch_offset=0)] * 10_000)]
    ask = frame(FetchRequest(max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, topics=topics), 4)
    for _ in range(100):
        send(address, ask)


@pytest.fixture(scope="module")
def attacked() -> Iterator[tuple[Process, int]]:
    """Return one process for all attacks, and its memory before the first one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    with started("--topics", "flights") as process:
        process.works()
        yield process, process.kilobytes()


@pytest.mark.parametrize(
    "attack",
    [garbage, huge_lengths, half_frames, connections, unread_answers, many_topics, many_members,
     long_polls],
)  # fmt: skip
def test_the_process_of_the_brokers_survives_each_attack(
    attacked: tuple[Process, int], attack: Callable[[tuple[str, int]], None]
) -> None:
    process, before = attacked
    attack(process.address)
    process.works()
    assert process.popen.poll() is None
    more = process.kilobytes() - before
    assert more < MOST_MORE_KB, f"{more >> 10} MB more"
