"""Setup of a Spark Python worker: garbage collection, and the connection to the JVM."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Iterator

import pytest

from odradek.runtime.process_sockets import acknowledge_at_once, tcp_connections
from odradek.spark.tasks.worker_process import REUSED, WorkerProcess

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK and /proc are Linux's")
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return both ends of a loopback connection: the worker's and the JVM's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
        with jvm, worker:
            yield worker, jvm


@pytest.fixture(autouse=True)
def callbacks() -> Iterator[None]:
    """Restore the callbacks of the garbage collector."""
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before


def talk(worker: socket.socket, jvm: socket.socket) -> None:
    """Exchange messages until the kernel delays TCP acknowledgements of the worker."""
    for _ in range(20):
        jvm.sendall(b"task")
        assert worker.recv(4) == b"task"
        worker.sendall(b"rows")
        assert jvm.recv(4) == b"rows"


def delays(worker: socket.socket) -> bool:
    """Return whether the kernel delays TCP acknowledgements."""
    return not worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


@pytest.mark.slow
@LINUX
def test_tcp_acknowledgements_are_immediate_after_a_full_garbage_collection(pair: Pair) -> None:
    worker, jvm = pair
    process = WorkerProcess({REUSED: "1"}, lambda: None)
    process.task_begins()
    for _ in range(3):
        talk(worker, jvm)
        assert delays(worker)
        gc.collect(1)
        assert delays(worker), "only a full collection is the daemon's"
        gc.collect()
        assert not delays(worker)
        process.task_begins()


@LINUX
def test_tcp_connections_are_found_among_all_file_descriptors(pair: Pair) -> None:
    worker, jvm = pair
    here, there = socket.socketpair()
    with here, there, socket.create_server(("127.0.0.1", 0)) as server:
        found = tcp_connections()
        assert {worker.fileno(), jvm.fileno()} <= set(found)
        assert not {here.fileno(), there.fileno(), server.fileno()} & set(found)
    assert worker.fileno() >= 0
    jvm.sendall(b"still open")
    assert worker.recv(10) == b"still open"


def test_closed_and_other_file_descriptors_are_ignored(pair: Pair) -> None:
    worker, _ = pair
    closed = worker.fileno()
    worker.close()
    reading, writing = os.pipe()
    try:
        acknowledge_at_once([closed, reading, writing, 10_000])
    finally:
        os.close(reading)
        os.close(writing)


def test_objects_are_excluded_from_garbage_collection_when_the_second_task_begins() -> None:
    frozen: list[int] = []
    process = WorkerProcess({REUSED: "1"}, lambda: frozen.append(1))
    process.task_begins()
    assert not frozen, "the first task's imports are garbage's too, until it was collected once"
    process.task_begins()
    process.task_begins()
    assert frozen == [1]


def test_processes_that_are_not_reused_workers_are_not_changed(pair: Pair) -> None:
    frozen: list[int] = []
    before = list(gc.callbacks)
    process = WorkerProcess({}, lambda: frozen.append(1))
    for _ in range(3):
        process.task_begins()
    assert not frozen
    assert gc.callbacks == before
