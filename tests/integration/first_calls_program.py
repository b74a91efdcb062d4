"""Fail all imports of a method's first call, and check that the next call works.

`python first_calls_program.py`: for each method, a forked child creates a client, fails to open the
package's files during one call, and calls again. It prints one JSON object for each method.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import odradek
from odradek.admin import ConfigResource
from odradek.errors import ClientBrokenError, KafkaError
from odradek.testing import FakeCluster

HERE = str(Path(odradek.__file__).parent)
TP = odradek.TopicPartition("t", 0)
TABLE = pa.table({"value": [b"a", b"b"]})
QUICK = {"default.api.timeout.ms": 500}


def _transaction(producer: Any) -> None:
    with producer.transaction():
        producer.send("t", b"x")
        producer.send_offsets_to_transaction({TP: 1}, "g")


def _polled(consumer: Any, poll: Callable[[], object]) -> None:
    consumer.assign([TP])
    poll()


CALLS: dict[str, dict[str, Callable[[Any], object]]] = {
    "Admin": {
        "list_topics": lambda a: a.list_topics(),
        "describe_cluster": lambda a: a.describe_cluster(),
        "describe_topics": lambda a: a.describe_topics(["t"]),
        "list_offsets": lambda a: a.list_offsets({TP: "LATEST"}),
        "list_groups": lambda a: a.list_groups(),
        "describe_configs": lambda a: a.describe_configs([ConfigResource("TOPIC", "t")]),
        "list_transactions": lambda a: a.list_transactions(),
        "group_offsets": lambda a: a.list_group_offsets("g"),
        "explain": lambda a: str(a.explain()),
    },
    "Consumer": {
        "subscribe": lambda c: c.subscribe(["t"]),
        "pattern": lambda c: c.subscribe(pattern="t.*"),
        "poll": lambda c: _polled(c, lambda: c.poll(0.05)),
        "poll_arrow": lambda c: _polled(c, lambda: c.poll_arrow(0.2)),
        "committed": lambda c: c.committed([TP]),
        "commit": lambda c: c.commit({TP: 1}),
        "beginning_offsets": lambda c: c.beginning_offsets([TP]),
        "offsets_for_times": lambda c: c.offsets_for_times({TP: 1}),
        "list_topics": lambda c: c.list_topics(),
        "metrics": lambda c: c.metrics(),
        "health": lambda c: str(c.health()),
    },
    "Producer": {
        "send": lambda p: p.send("t", b"x").result(0.5),
        "send_many": lambda p: p.send_many("t", [b"x"]).result(0.5),
        "send_arrow": lambda p: p.send_arrow("t", TABLE).result(0.5),
        "partitions_for": lambda p: p.partitions_for("t"),
        "warm": lambda p: p.warm(["t"]),
        "metrics": lambda p: p.metrics(),
        "transaction": _transaction,
    },
}


class Refusal:
    """Fail to open the package's files while `on` is true."""

    def __init__(self) -> None:
        self.on = False
        self.count = 0
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event == "open" and str(arguments[0]).startswith(HERE):
            self.count += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def create_client(kind: str, method: str, servers: str) -> Any:
    config: dict[str, Any] = {"bootstrap.servers": servers, **QUICK}
    if kind == "Consumer":
        config |= {"group.id": "g"}
    if method == "transaction":
        config |= {"transactional.id": "x"}
    client = getattr(odradek, kind)(config)
    if method == "transaction":
        client.init_transactions()
    return client


def call_twice(kind: str, method: str, servers: str) -> dict[str, Any]:
    """Return how often opening a file failed, and the errors that aren't the package's."""
    client, call = create_client(kind, method, servers), CALLS[kind][method]
    refusal, broken, last = Refusal(), [], ""
    refusal.on = True
    try:
        call(client)
    except KafkaError as error:
        if isinstance(error, ClientBrokenError):
            broken.append(repr(error))
    except BaseException:
        broken.append(traceback.format_exc())
    refusal.on = False
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        try:
            call(client)
        except KafkaError:  # the transaction has to be aborted, or metadata is still missing
            last = traceback.format_exc()
            time.sleep(0.02)
        else:
            break
    else:
        broken.append(last)
    client.close()
    return {"method": f"{kind}.{method}", "refused": refusal.count, "broken": broken}


def main() -> None:
    """Run each method in a forked child, in which only a normal program's modules are loaded."""
    warnings.simplefilter("ignore")
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        for kind, methods in CALLS.items():
            for method in methods:
                child = os.fork()
                if not child:
                    try:
                        found = call_twice(kind, method, cluster.bootstrap_servers)
                    except BaseException:
                        found = {"method": f"{kind}.{method}", "broken": [traceback.format_exc()]}
                    os.write(1, (json.dumps(found) + "\n").encode())
                    os._exit(0)
                os.waitpid(child, 0)


if __name__ == "__main__":
    main()
