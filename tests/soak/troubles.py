"""Cause the faults of a soak's brokers.

In: a cluster, workers, times. Out: faults with their begin and end. Must not: judge the results.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.soak.lossy_proxy import ProxyProcess
from tests.soak.workers import Config, Worker

from odradek.admin import Admin, ClientQuotaEntity
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.testing import ClusterStartError, LocalCluster

TROUBLES = ("kill", "kill", "pause", "move", "roll")
MORE_TROUBLES = ("reassign", "throttle", "lose answers")
"""Faults that need an admin client or a proxy."""
LOSING = 4
"""Number of lost answers per API, and seconds between two losses."""
THROTTLED = 10.0
"""Seconds for which the quota lasts."""
QUOTAS = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 4000.0}
"""Bytes per second of a user at one broker; a soak of 40 records/s writes 5,000 there."""
ADMIN_TIMEOUT = 60.0
STARTED_WITHIN = 300.0
"""Additional seconds in which brokers have to start: on a busy machine, 90 s may be too few."""
USER = "alice"


class Troubles:
    """Causes faults, one after the other."""

    def __init__(
        self,
        cluster: LocalCluster,
        rng: random.Random,
        workers: Sequence[Worker],
        *,
        pause: float,
        victims: Sequence[str] = (),
        proxy: ProxyProcess | None = None,
        topics: Sequence[str] = (),
        config: Config | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.times: list[tuple[str, float, float]] = []
        """Kind, begin and end on the monotonic clock."""
        self.moved = 0
        """Number of partitions whose replicas were moved."""
        self.errors: Counter[str] = Counter()
        self._cluster, self._rng, self._workers = cluster, rng, list(workers)
        self._pause, self._names, self._proxy = pause, list(victims), proxy
        self._topics, self._config = list(topics), dict(config or {})
        self._victims: list[Worker] = []

    def cause(self, kind: str, say: Callable[[str], None]) -> None:
        """Cause one fault and wait until it is over."""
        self.counts[kind] += 1
        begun = time.monotonic()
        if kind in ("kill", "pause"):
            self._hurt_one(kind, say)
        else:
            say(kind)
            acts: dict[str, Callable[[], None]] = {
                "move": self._move,
                "roll": self._roll,
                "reassign": self._reassign,
                "throttle": self._throttle,
                "lose answers": self._lose,
            }
            acts[kind]()
        self.times.append((kind, begun, time.monotonic()))
        say(f"{kind} is over")

    def _hurt_one(self, kind: str, say: Callable[[str], None]) -> None:
        broker, why = self._victim()
        say(f"{kind} of broker {broker}, {why}")
        if kind == "kill":
            self._cluster.kill(broker)
            time.sleep(self._rng.uniform(1.0, 6.0))
            self._start(broker)
        else:
            self._cluster.pause(broker)
            time.sleep(self._pause)
            self._cluster.resume(broker)

    def _roll(self) -> None:
        for broker in sorted(self._cluster.running):
            self._cluster.stop(broker)
            self._start(broker)

    def _start(self, broker: int) -> None:
        with self._slow_start():
            self._cluster.start(broker)

    def _move(self) -> None:
        with self._slow_start():
            self._cluster.move()

    @contextmanager
    def _slow_start(self) -> Iterator[None]:
        """Wait longer for brokers that the cluster doesn't report as ready within its limit."""
        try:
            yield
        except ClusterStartError:
            self._cluster._now.wait_ready(STARTED_WITHIN)
            self._cluster._lead()

    def _victim(self) -> tuple[int, str]:
        """Return a running broker that a worker depends on now, and the reason for the choice.

        A random broker would often be one that has restarted and leads no partition yet.
        """
        if not self._victims:
            names = self._names or [worker.name for worker in self._workers]
            self._victims = [worker for worker in self._workers if worker.name in names]
            self._rng.shuffle(self._victims)
        worker = self._victims.pop()
        broker = worker.needs()
        running = sorted(self._cluster.running)
        if broker not in running:
            return self._rng.choice(running), "any"
        return broker, f"which {worker.name} needs"

    # By an admin client of Odradek

    def _reassign(self) -> None:
        """Remove one replica of each partition of a topic, add it again, elect other leaders."""
        topic = self._rng.choice(self._topics)
        with Admin(self._config) as admin:
            try:
                found = admin.describe_topics(topic, ADMIN_TIMEOUT)[topic]
                replicas = {
                    TopicPartition(topic, p.partition): [*p.replicas[1:], p.replicas[0]]
                    for p in found.partitions
                }
                for count in (2, 3):
                    wanted = {place: nodes[:count] for place, nodes in replicas.items()}
                    admin.alter_partition_reassignments(wanted, ADMIN_TIMEOUT)
                    end = time.monotonic() + ADMIN_TIMEOUT
                    while admin.list_partition_reassignments(timeout=ADMIN_TIMEOUT):
                        if time.monotonic() > end:
                            raise TimeoutError(f"{topic} is still being reassigned")
                        time.sleep(0.2)
                self.moved += len(replicas)
                admin.elect_leaders("PREFERRED", list(replicas), ADMIN_TIMEOUT)
            except KafkaError as error:
                self.errors[type(error).__name__] += 1

    def _throttle(self) -> None:
        """Set a quota for the clients' user far below the load, for `THROTTLED` seconds."""
        entity = ClientQuotaEntity(user=USER)
        with Admin(self._config) as admin:
            admin.alter_client_quotas({entity: QUOTAS}, ADMIN_TIMEOUT)
            time.sleep(THROTTLED)
            admin.alter_client_quotas({entity: dict.fromkeys(QUOTAS)}, ADMIN_TIMEOUT)

    def _lose(self) -> None:
        assert self._proxy is not None
        for _ in range(LOSING):
            self._proxy.lose()
            time.sleep(LOSING)
