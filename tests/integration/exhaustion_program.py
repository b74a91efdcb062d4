"""Fail each resource request of a client in an outage, one by one, and check its recovery.

`python exhaustion_program.py NUMBER...`: for each number, a forked child fails the client's
resource request with this number (a file, a socket, an import, a name, a thread); 0 fails all of
them until the outage is over. The program prints one JSON object for each.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import odradek
from odradek.errors import ClientBrokenError, KafkaError
from odradek.testing import FakeCluster

EVENTS = {
    "open": errno.EMFILE, "socket.__new__": errno.EMFILE, "import": errno.EMFILE,
    "socket.getaddrinfo": errno.EMFILE, "_thread.start_new_thread": errno.EAGAIN,
}  # fmt: skip
OURS = "loopback server"
"""Name of the thread of the simulated cluster, whose requests never fail."""


class Exhaustion:
    """Count the resource requests of the process, and fail some of them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.armed = False
        self.refused: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.armed and event in EVENTS and threading.current_thread().name != OURS:
            self.count += 1
            if self.number in (0, self.count):
                self.refused.append(f"{event} {arguments[0] if arguments else ''}")
                code = EVENTS[event]
                if event == "_thread.start_new_thread":
                    raise RuntimeError("can't start new thread")
                raise OSError(code, os.strerror(code))


def until(condition: Callable[[], object], seconds: float, broken: list[str]) -> bool:
    """Retry until a condition is true; record errors that a client must not raise."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return True
        except KafkaError as error:
            if isinstance(error, ClientBrokenError):
                broken.append(repr(error))
                return False
        time.sleep(0.02)
    return False


def told(call: Callable[[], object], broken: list[str]) -> None:
    """Call a function that may fail in an outage, but only with an error of the package."""
    try:
        call()
    except KafkaError as error:
        if isinstance(error, ClientBrokenError):
            broken.append(repr(error))
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        broken.append(f"{error!r} at {where.filename}:{where.lineno}")


def scene(number: int) -> dict[str, Any]:
    """Run one outage; return the failed resource requests and the unexpected errors."""
    broken: list[str] = []
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = odradek.Producer({**servers, "max.block.ms": 300})
        quick, first = {"default.api.timeout.ms": 300}, {"auto.offset.reset": "earliest"}
        consumer = odradek.Consumer({**servers, **quick, **first, "group.id": "g"})
        admin = odradek.Admin({**servers, **quick})
        packing = odradek.Producer({**servers, "compression.type": "zstd"})
        other = {"group.id": "h", "group.protocol": "consumer"}
        joining = odradek.Consumer({**servers, **first, **other})
        producer.send("t", b"0").result(20)
        consumer.subscribe(["t", "missing"])
        values: list[bytes | None] = []

        def read(value: bytes) -> bool:
            values.extend(r.value for r in consumer.poll(0.1))
            return value in values

        until(lambda: read(b"0"), 20, broken)
        until(admin.list_topics, 20, broken)
        until(lambda: packing.partitions_for("t"), 20, broken)
        exhaustion = Exhaustion(number)
        exhaustion.armed = True
        cluster.kill(1)
        late = producer.send("t", b"1")
        for call in (
            lambda: consumer.poll(0.2),
            lambda: packing.send("t", b"packed"),
            lambda: joining.subscribe(["t"]),
            lambda: admin.describe_topics(["missing"]),
            lambda: producer.send("absent", b"x").result(0.1),
            lambda: str(producer.explain()),
            lambda: str(consumer.explain()),
            lambda: str(consumer.health()),
            lambda: str(producer.health()),
            lambda: consumer.commit(timeout=0.2),
            producer.metrics,
        ):
            told(call, broken)
        cluster.start(1)
        if number == 0:
            until(lambda: consumer.poll(0.1), 1.0, broken)
        else:
            until(lambda: late.done(), 10, broken)
        exhaustion.armed = False
        for works in (
            lambda: late.result(0.1),
            lambda: producer.send("t", b"2").result(0.5),
            lambda: read(b"2"),
            lambda: packing.send("t", b"packed").result(0.5),
            lambda: joining.subscribe(["t"]) or joining.poll(0.2),
            admin.list_topics,
            lambda: str(consumer.explain()),
        ):
            if not until(works, 20, broken):
                broken.append(f"it doesn't work again: {consumer.explain()} {producer.explain()}")
                break
        for client in (producer, consumer, admin, packing, joining):
            told(client.close, broken)
    return {
        "number": number, "asked": exhaustion.count, "refused": exhaustion.refused,
        "broken": broken,
    }  # fmt: skip


def main() -> None:
    """Run each number in a forked child, in which only a normal program's modules are loaded."""
    warnings.simplefilter("ignore")
    for number in map(int, sys.argv[1:]):
        child = os.fork()
        if not child:
            try:
                found = scene(number)
            except BaseException:
                found = {"number": number, "broken": [traceback.format_exc()]}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
