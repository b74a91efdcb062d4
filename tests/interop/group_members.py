"""Members of one group, of three clients: Odradek, confluent-kafka (librdkafka) and Kafka's Java.

In: names, a topic, each member's configuration. Out: the partitions that each member had and the
records that it read. Ours and librdkafka's run in threads, Java's all in one JVM
(`GroupMembers.java`).
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from tests.interop.other_client import Row, settings, write_all

from odradek.api.consumer import Consumer
from odradek.testing import FakeCluster, LocalCluster, jars
from odradek.testing.java import cache_directory, java_home

PARTITIONS, ROWS = 6, 60
"""Partitions of a topic, and the number of records written at each step of a scenario."""
Config = Callable[[str, str], dict[str, Any]]
Cluster = LocalCluster | FakeCluster
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CLIENT_JARS = ("org.apache.kafka.kafka-clients-", "org.slf4j.slf4j-api-")


class Observed:
    """Events of the members of one group; a lock protects them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.owned: dict[str, set[int]] = {}
        """Partitions by member; stopped members are missing."""
        self.read: list[tuple[str, int, int]] = []
        """Member, partition and offset of each record that was read."""
        self.told: Counter[str] = Counter()
        """Number of assignments and revocations by member."""
        self.errors: list[str] = []

    def record(self, name: str, what: str, numbers: Iterable[int] = (), text: str = "") -> None:
        """Record an event of a member."""
        with self.changed:
            owned = self.owned.setdefault(name, set())
            self.told[name] += what in ("assigned", "revoked", "lost")
            if what == "assigned":
                owned.update(numbers)
            elif what in ("revoked", "lost"):
                owned.difference_update(numbers)
            elif what == "read":
                partition, offset = numbers
                self.read.append((name, partition, offset))
            elif what == "stopped":
                del self.owned[name]
            else:
                self.errors.append(f"{name}: {text}")
            self.changed.notify_all()

    def wait(self, until: Callable[[], bool], what: str, timeout: float = 120.0) -> None:
        """Wait until a condition is true."""
        with self.changed:
            held = self.changed.wait_for(lambda: bool(self.errors) or until(), timeout)
            assert not self.errors, self.errors
            twice = Counter((partition, offset) for _, partition, offset in self.read)
            again = [one for one in self.read if twice[one[1:]] > 1]
            state = f"{self.owned}, {len(self.read)} read, of these more than once: {again}"
            assert held, f"no {what} in {timeout:g} s: {state}"

    def is_balanced(self, names: Iterable[str], partitions: int) -> bool:
        """Return whether exactly these members have all partitions, each once and evenly."""
        if set(self.owned) != set(names):
            return False
        sizes = [len(o) for o in self.owned.values()]
        every = sorted(p for owned in self.owned.values() for p in owned)
        return every == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    def complete(self, counts: dict[int, int]) -> bool:
        """Return whether `counts` records of each partition were read, by any member."""
        return Counter(p for p, _ in {one[1:] for one in self.read}) == counts


class Member(ABC):
    """Consumer in the group."""

    def __init__(self, name: str, observed: Observed) -> None:
        self.name = name
        self._observed = observed

    @abstractmethod
    def stop(self) -> None:
        """Leave the group in order, without waiting for it."""

    def _record(self, what: str, partitions: Iterable[Any]) -> None:
        self._observed.record(self.name, what, [p.partition for p in partitions])


class _InThread(Member):
    def __init__(self, name: str, observed: Observed, topic: str, config: dict[str, Any]) -> None:
        super().__init__(name, observed)
        self._stopping = False
        self._topic, self._config = topic, config
        observed.record(name, "assigned")
        threading.Thread(target=self._life, name=name, daemon=True).start()

    def stop(self) -> None:
        self._stopping = True

    def _life(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._observed.record(self.name, "error", text=repr(error))
        self._observed.record(self.name, "stopped")

    @abstractmethod
    def _run(self) -> None: ...


class Ours(_InThread):
    """Member with Odradek's consumer."""

    def _run(self) -> None:
        with Consumer(self._config) as consumer:
            consumer.subscribe(
                [self._topic],
                on_assigned=lambda _, p: self._record("assigned", p),
                on_revoked=lambda _, p: self._record("revoked", p),
                on_lost=lambda _, p: self._record("lost", p),
            )
            while not self._stopping:
                for record in consumer.poll(0.1):
                    self._observed.record(self.name, "read", (record.partition, record.offset))


class Librdkafkas(_InThread):
    """Member with confluent-kafka's consumer."""

    def _run(self) -> None:
        consumer = ConfluentConsumer(settings(**self._config))
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=lambda _, p: self._record("assigned", p),
                on_revoke=lambda _, p: self._record("revoked", p),
                on_lost=lambda _, p: self._record("lost", p),
            )
            while not self._stopping:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                assert message.error() is None, str(message.error())
                found = (message.partition() or 0, message.offset() or 0)
                self._observed.record(self.name, "read", found)
        finally:
            consumer.close()


class Javas(Member):
    """Member with Java's KafkaConsumer."""

    def __init__(
        self, name: str, observed: Observed, jvm: Jvm, topic: str, config: dict[str, Any]
    ) -> None:
        super().__init__(name, observed)
        observed.record(name, "assigned")
        self._jvm = jvm
        jvm.listeners[name] = self._heard
        jvm.say("start", name, topic, *(f"{k}={v}" for k, v in config.items()))

    def stop(self) -> None:
        self._jvm.say("stop", self.name)

    def _heard(self, what: str, words: list[str]) -> None:
        numbers = [] if what == "error" else [int(w.rpartition("-")[2]) for w in words]
        self._observed.record(self.name, what, numbers, " ".join(words))


def compiled(source: Path, path: str) -> Path:
    """Return the folder with a program's classes, which the first run on a machine compiles.

    Compiling takes more processor time than most tests need to run the program.
    """
    identity = zlib.crc32(source.read_bytes() + f"{path}:{java_home()}".encode())
    folder = cache_directory() / f"program-{source.stem}-{identity:08x}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_directory()) as kept:
            made = Path(kept) / "classes"
            compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", path, "-d", str(made)]
            java = str(java_home() / "bin" / "java")
            subprocess.run([java, *QUICK_JVM, *compiler, str(source)], check=True)
            with suppress(OSError):  # another process was faster
                made.rename(folder)
    return folder


def java_program(source: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a program in one file with Kafka's own client jars; it reads and writes lines."""
    folder = jars.fetch(jars.DEFAULT_VERSION)
    files = [str(f) for f in sorted(folder.iterdir()) if f.name.startswith(CLIENT_JARS)]
    path = ":".join([*files, str(compiled(source, ":".join(files)))])
    options = ["-Xmx128m", *QUICK_JVM, "-cp", path]
    command = [str(java_home() / "bin" / "java"), *options, source.stem, *arguments]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True)


def end_program(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


class Jvm:
    """Process in which all Java members run."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[[str, list[str]], None]] = {}
        self._process = java_program(Path(__file__).with_name("GroupMembers.java"))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, what, *words = line.split()
            self.listeners[name](what, words)

    def close(self) -> None:
        """Kill the process with all its members."""
        self._process.kill()
        self._reader.join()
        end_program(self._process)


def start_member(
    kind: str, name: str, observed: Observed, cluster: Cluster, jvm: Jvm, topic: str,
    config: dict[str, Any],
) -> Member:  # fmt: skip
    """Start a member of a client: "ours", "confluent" or "java"."""
    whole = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "client.id": name,
        **config,
    }
    if kind == "java":
        return Javas(name, observed, jvm, topic, whole)
    if kind == "confluent":
        servers = whole.pop("bootstrap.servers")
        return Librdkafkas(name, observed, topic, {"servers": servers, **whole})
    return Ours(name, observed, topic, whole)


class GroupScenario:
    """Scenario of one group with its own topic, from its first member to its last.

    `config` returns a member's options by its client and its name. Records that a member of the
    `careless` client has read may be read again by the partition's next owner.
    """

    def __init__(
        self, cluster: Cluster, jvm: Jvm, topic: str, config: Config, careless: str = ""
    ) -> None:
        self._careless = careless
        self._cluster, self._jvm, self._topic, self._config = cluster, jvm, topic, config
        self._observed = Observed()
        self._members: dict[str, Member] = {}
        self._written = 0
        cluster.create_topic(topic, partitions=PARTITIONS)

    def join(self, *names: str) -> None:
        """Start members; a name is the client's and a number."""
        for name in names:
            self._start(name)
        self._settle()

    def _start(self, name: str) -> None:
        kind = name.rstrip("0123456789")
        config = {"group.id": f"group-of-{self._topic}", **self._config(kind, name)}
        self._members[name] = start_member(
            kind, name, self._observed, self._cluster, self._jvm, self._topic, config
        )

    def restart(self, name: str) -> None:
        """Stop a static member and start it again, without a rebalance of the others."""
        observed = self._observed
        before, told = set(observed.owned[name]), Counter(observed.told)
        self._members[name].stop()
        observed.wait(lambda: name not in observed.owned, f"end of {name}")
        self._start(name)
        self._settle()
        assert observed.owned[name] == before
        assert {n for n in observed.told if observed.told[n] != told[n]} == {name}

    def leave(self, *names: str) -> None:
        """Stop members."""
        for name in names:
            self._members.pop(name).stop()
        self._settle()

    def _settle(self) -> None:
        """Write records, and wait until the partitions are divided and all records are read."""
        self._write()
        observed = self._observed
        if self._members:
            observed.wait(lambda: observed.is_balanced(self._members, PARTITIONS), "even division")
            self._write()
            counts = dict.fromkeys(range(PARTITIONS), self._written // PARTITIONS)
            observed.wait(lambda: observed.complete(counts), f"end ({self._written} rows)")
        else:
            observed.wait(lambda: not observed.owned, "end of all members")

    def _write(self) -> None:
        rows = [Row(None, b"%d" % n) for n in range(self._written, self._written + ROWS)]
        write_all(self._cluster.bootstrap_servers, self._topic, rows, range(PARTITIONS))
        self._written += ROWS

    def check(self) -> None:
        """Check that each record was read once (except by careless members), and in order."""
        first: dict[tuple[int, int], str] = {}
        last: dict[tuple[str, int], int] = {}
        for name, partition, offset in self._observed.read:
            reader = first.setdefault((partition, offset), name)
            assert reader is name or (self._careless and reader.startswith(self._careless)), (
                f"{name} read {partition}:{offset} again, after {reader}"
            )
            assert offset > last.get((name, partition), -1)
            last[name, partition] = offset
        assert not self._observed.errors
