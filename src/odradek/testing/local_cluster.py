"""`LocalCluster`: real Kafka brokers behind one fixed address, and the verbs that hurt them.

In: a number of brokers, a Kafka version. Out: `bootstrap_servers`, and whatever happens to the
brokers behind it. Must not: leave a process or a temporary directory behind, however it ends
(`keeper` sees to that), nor speak Kafka with our own client.

    with LocalCluster(brokers=3) as cluster:
        producer = odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.move()
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from odradek.runtime.private_files import write_privately
from odradek.testing import jars
from odradek.testing.brokers.broker import FULL_JVM, SMALL_JVM, JavaSetup, LocalBroker
from odradek.testing.brokers.broker_set import BrokerSet, Timeline
from odradek.testing.brokers.front_door import FrontDoor
from odradek.testing.brokers.process import Keeper
from odradek.testing.brokers.security import ClientCertificates, Protocol, Security, properties_text
from odradek.testing.java import java_home, own_cache

if TYPE_CHECKING:
    from odradek.testing.brokers.authority import Authority, Kind

_LARGEST = 30  # addresses end in 10 + node id; and no test machine carries more JVMs


class LocalCluster:
    """A cluster of `brokers` combined KRaft brokers (ids from 0) on loopback.

    `version` may be short ("4.3") and needs a committed list of jars. `config` is added to every
    broker's properties. With a `directory` the data stays there and is taken up again by the next
    cluster of the same size; else it is temporary. `port` fixes the front door's port. Brokers
    start quickly and stay small; `full_jvm` runs them as Kafka's own scripts do, for benchmarks.

    `security` is what clients must speak: SSL, SASL_SSL or SASL_PLAINTEXT. Certificates, keys and
    `users` (name: password) are made; `client_config`, `java_properties` and `librdkafka_config`
    are ways in. `mutual_tls` asks clients for certificates ("required" or "requested"); with `acls`
    users may do what `allow` allowed and nothing else. OAUTHBEARER takes unsigned tokens, or those
    signed by a key found at `jwks`. The brokers among themselves, and Kafka's tools, use listeners
    without TLS beside it (`inner_servers`), which ask for a password where there are `acls`.
    """

    def __init__(
        self,
        brokers: int = 3,
        version: str = jars.DEFAULT_VERSION,
        *,
        auto_create_topics: bool = False,
        config: Mapping[str, str] | None = None,
        directory: Path | None = None,
        heap: str = "384m",
        full_jvm: bool = False,
        port: int = 0,
        security: Protocol = "PLAINTEXT",
        mechanisms: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
        mutual_tls: ClientCertificates | Literal[False] = False,
        acls: bool = False,
        jwks: str | None = None,
        java_options: Sequence[str] = (),
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not 1 <= brokers <= _LARGEST:
            raise ValueError(f"brokers must be 1 to {_LARGEST}, not {brokers}")
        self.version = jars.resolve_version(version)
        self.timeline = Timeline()
        self._count = brokers
        self._config = dict(config or {})
        if auto_create_topics:
            self._config["auto.create.topics.enable"] = "true"
        self._kept = directory.resolve() if directory is not None else None
        self._heap = heap
        self._options = FULL_JVM if full_jvm else SMALL_JVM
        self._security = Security(security, mechanisms, users or {}, mutual_tls, acls, jwks)
        self._java_options = tuple(java_options)
        self._report = report
        self._door = FrontDoor(port=port)
        self._keeper: Keeper | None = None
        self._java: JavaSetup | None = None
        self._directory = Path()
        self._original: BrokerSet | None = None
        self._current: BrokerSet | None = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Fetch what is missing, start everything, return when all brokers answer."""
        if self._keeper is not None:
            raise RuntimeError("the cluster is open already")
        # First of all, so that two starts on one port don't begin to format.
        self._door.start()
        try:
            folder = jars.fetch(self.version, self._report)
            self._java = JavaSetup(
                java_home(),
                folder,
                own_cache(),
                self._heap,
                self._options,
                self._tools if self.version in jars.TOOLS_OF else None,
            )
            self._keeper = Keeper()
            temporary = Path(tempfile.mkdtemp(prefix="odradek-cluster-"))
            self._keeper.remove_at_end(temporary)
            self._directory = self._kept or temporary
            self._prepare_archive(temporary)
            self._security.prepare(self._directory)
            many = f"{self._count} broker{'s' * (self._count != 1)}"
            self._report(f"starting {many} of Kafka {self.version}")
            self._original = self._current = self._new_set(self._directory)
            self._original.format()
            self._original.start_all()
            self._lead()
        except BaseException:  # also Ctrl-C
            self.close()
            raise
        return self

    def _tools(self) -> Path:
        """Another version's console tools; tens of megabytes that only who runs one waits for."""
        return jars.fetch(jars.TOOLS_OF[self.version], self._report)

    def close(self) -> None:
        """End every process; temporary data goes with them. May be called again."""
        keeper, self._keeper = self._keeper, None
        self._door.lead_to(())
        if keeper is not None:
            if self._kept is not None and self._current is not None:
                # Data that stays deserves a clean end; data that goes doesn't.
                self._current.stop(self._current.brokers, graceful=True)
            keeper.close()
        self._door.close()

    @property
    def bootstrap_servers(self) -> str:
        """The front door: the one address that stays, whatever becomes of the brokers."""
        return str(self._door.address)

    @property
    def front_door(self) -> FrontDoor:
        """The forwarder itself, for tests that cut or count its connections."""
        return self._door

    @property
    def broker_addresses(self) -> tuple[str, ...]:
        """The brokers' own addresses ("host:port") now, by id, whether they run or not."""
        return tuple(str(broker.address) for broker in self._now.brokers)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster behind the front door now."""
        return self._now.cluster_id

    @property
    def directory(self) -> Path:
        """Where the brokers' files are."""
        return self._directory

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the brokers whose process exists (a paused one's does)."""
        return tuple(broker.node_id for broker in self._now.brokers if broker.running)

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running brokers by broker id."""
        return {
            broker.node_id: broker.child.pid
            for broker in self._now.brokers
            if broker.child is not None and broker.running
        }

    def logs(self, i: int) -> str:
        """Return all that broker `i` logged, over all its starts."""
        path = self._broker(i).log
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, i: int) -> None:
        """End broker `i` with SIGKILL and wait until it is gone."""
        self._now.stop([self._broker(i)], graceful=False)
        self._lead()

    def stop(self, i: int) -> None:
        """Let broker `i` shut down in order (SIGTERM) and wait until it is gone."""
        self._now.stop([self._broker(i)], graceful=True)
        self._lead()

    def start(self, i: int) -> None:
        """Start broker `i` again where it was, and wait until the running brokers know it."""
        self._now.spawn(self._broker(i))
        self._now.wait_ready()
        self._lead()

    def pause(self, i: int) -> None:
        """Freeze broker `i` (SIGSTOP): connections stay open, nothing answers."""
        self._now.pause(self._broker(i))

    def resume(self, i: int) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._now.resume(self._broker(i))

    def move(self, *, graceful: bool = False) -> None:
        """Take all brokers away and bring them back on other addresses and ports.

        Data and cluster id stay. By default the brokers are killed, as machines that vanish are;
        gracefully they hand over what they can first.
        """
        self.timeline.add("move_started")
        self._now.stop(self._now.brokers, graceful=graceful)
        self._lead()
        self._now.move_all()
        self._now.start_all()
        self._lead()
        self.timeline.add("moved")

    def swap(self, i: int, j: int) -> None:
        """Kill two brokers and bring each back where the other one was; data and ids stay.

        Whoever goes by old metadata finds another broker than it means (KIP-1242).
        """
        self.timeline.add("swap_started")
        self._now.swap(self._broker(i), self._broker(j))
        self._lead()
        self.timeline.add("swapped")

    def replace_with_foreign(self, *, same_addresses: bool = False) -> str:
        """Stop the cluster and open another one, with another id, behind the same front door.

        Every verb and attribute then means the foreign cluster, until `restore()`. With
        `same_addresses` its brokers listen where the old ones did. Returns the foreign id.
        """
        old = self._now
        if old is not self._original:
            raise RuntimeError("the cluster is replaced already; restore() it first")
        self.timeline.add("foreign_started")
        old.stop(old.brokers, graceful=False)
        self._door.lead_to(())
        foreign = self._new_set(self._directory / "foreign" / f"{len(self.timeline)}")
        if same_addresses:
            foreign.take_addresses_of(old)
        self._current = foreign
        foreign.format()
        foreign.start_all()
        self._lead()
        self.timeline.add("foreign_up")
        return foreign.cluster_id

    def restore(self) -> None:
        """Stop the foreign cluster and bring the first one back, at its own addresses."""
        foreign, original = self._now, self._original
        if original is None or foreign is original:
            raise RuntimeError("there is no foreign cluster to be replaced")
        foreign.stop(foreign.brokers, graceful=False)
        self._current = original
        original.start_all()
        self._lead()
        self.timeline.add("restored")

    def run_tool(
        self,
        main: str,
        arguments: Iterable[str],
        *,
        given: bytes | None = None,
        timeout: float = 60.0,
        check: bool = True,
        java_options: Iterable[str] = (),
    ) -> str:
        """Run one of Kafka's own Java programs (a main class) and return its standard output.

        `given` is its standard input, `java_options` are for its JVM; `--bootstrap-server` is the
        caller's to say (`tool_arguments` has it). Raises `ToolError` when it fails (unless `check`
        is false) or takes too long.
        """
        return self._now.run_tool(
            main, arguments, given=given, timeout=timeout, check=check, java_options=java_options
        )

    def create_topic(
        self, topic: str, partitions: int = 1, replication_factor: int | None = None
    ) -> None:
        """Create a topic; the running brokers know it afterwards."""
        self._now.create_topic(topic, partitions, replication_factor or min(3, self._count))

    def console_producer(self, topic: str, lines: bytes, *options: str) -> None:
        """Send lines with Kafka's own console producer; `options` go to it as they are."""
        self.run_tool(
            "org.apache.kafka.tools.ConsoleProducer",
            [*self.tool_arguments("--producer.config"), "--topic", topic, *options],
            given=lines,
        )

    def console_consumer(
        self, topic: str, *options: str, max_messages: int | None = None, timeout: float = 10.0
    ) -> str:
        """Read a topic from its beginning with Kafka's own console consumer.

        It ends after `max_messages`, or when nothing came for `timeout` seconds.
        """
        where = self.tool_arguments("--consumer.config")
        arguments = [*where, "--topic", topic, "--from-beginning",
                     "--timeout-ms", str(int(timeout * 1000)), *options]  # fmt: skip
        if max_messages is not None:
            arguments += ["--max-messages", str(max_messages)]
        # It says that it ended by its own time limit with a failure's exit status.
        return self.run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            arguments,
            timeout=timeout + 60.0,
            check=max_messages is not None,
        )

    # How clients get in

    def client_config(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        """Settings for Odradek's clients: the front door, and what the security asks for.

        By default the first user by the first mechanism; `password` replaces the right one.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.ours(user, mechanism, password),
        }

    def java_config(
        self,
        user: str | None = None,
        mechanism: str | None = None,
        password: str | None = None,
        stores: Kind = "PEM",
    ) -> dict[str, str]:
        """The same in Kafka's own words; `stores` is the kind of its key and trust stores."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.java(user, mechanism, password, stores),
        }

    def java_properties(
        self, user: str | None = None, mechanism: str | None = None, stores: Kind = "PEM"
    ) -> Path:
        """Write `java_config` to a properties file, as Java's clients and tools read it."""
        settings = self.java_config(user, mechanism, stores=stores)
        words = [user or "client", settings.get("sasl.mechanism", ""), stores]
        path = self._directory / f"{'-'.join(filter(None, words)).lower()}.properties"
        write_privately(path, properties_text(settings))
        return path

    def librdkafka_config(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, str]:
        """The same in librdkafka's words, for confluent-kafka."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._security.librdkafka(user, mechanism, password),
        }

    @property
    def security(self) -> Protocol:
        """What clients must speak."""
        return self._security.protocol

    @property
    def client_names(self) -> tuple[str, ...]:
        """Who may come in, by name: the users, or one for all where nobody is asked."""
        return self._security.client_names

    @property
    def authority(self) -> Authority:
        """Who signed the brokers' certificates, and signs those of clients."""
        return self._security.authority

    @property
    def inner_servers(self) -> str:
        """The running brokers' addresses for each other, without TLS.

        Nobody is asked there who he is, unless there are `acls`: `inner_config` has the way in.
        """
        return ",".join(str(one.plain_address) for one in self._now.brokers if one.running)

    def inner_config(self) -> dict[str, str]:
        """Settings for Odradek's and Java's clients to come in where the brokers do.

        Everything may be done there, also where `acls` keep the users from it.
        """
        return {"bootstrap.servers": self.inner_servers, **self._security.inner_java()}

    def change_password(self, user: str, password: str) -> None:
        """Give a user another password; connections that are there stay until they log in again.

        PLAIN's passwords are in the brokers' files: with it each broker is restarted in turn.
        """
        from odradek.api.admin import Admin
        from odradek.clients.admin.users import UserScramCredentialUpsertion

        mechanisms = self._security.change_password(user, password)
        if mechanisms:
            with Admin(self.inner_config()) as admin:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(user, m, password) for m in mechanisms]
                )
        self._now.rewrite_properties()
        if "PLAIN" in self._security.mechanisms:
            for i in self.running:
                self.stop(i)
                self.start(i)

    def rotate_certificates(self) -> None:
        """Give the brokers new keys and certificates of the same authority; none is restarted."""
        self._now.rotate_certificates()

    def allow(self, user: str, *arguments: str) -> None:
        """Allow a user something, in the words of Kafka's tool: "--operation", "Read", "--topic" …

        Needs `acls`; until then a user may do nothing.
        """
        self.run_tool(
            "org.apache.kafka.tools.AclCommand",
            [*self.tool_arguments(), "--add", "--allow-principal", f"User:{user}",
             *arguments],
        )  # fmt: skip

    @property
    def _now(self) -> BrokerSet:
        if self._current is None:
            raise RuntimeError("the cluster is not open")
        return self._current

    def tool_arguments(self, option: str = "--command-config") -> list[str]:
        """What makes Kafka's tools come in where the brokers do: "--bootstrap-server" and so on.

        `option` is the tool's own name for a file of settings.
        """
        return self._now.inner_arguments((b for b in self._now.brokers if b.running), option)

    def _broker(self, i: int) -> LocalBroker:
        if not 0 <= i < self._count:
            raise IndexError(f"there is no broker {i}; the ids are 0 to {self._count - 1}")
        return self._now.brokers[i]

    def _lead(self) -> None:
        self._door.lead_to(one.address for one in self._now.brokers if one.running)

    def _new_set(
        self, directory: Path, count: int | None = None, security: Security | None = None
    ) -> BrokerSet:
        if self._keeper is None or self._java is None:
            raise RuntimeError("the cluster is not open")
        return BrokerSet(
            keeper=self._keeper,
            java=self._java,
            directory=directory,
            count=count or self._count,
            config=self._config,
            timeline=self.timeline,
            security=security or self._security,
            java_options=self._java_options,
        )

    def _prepare_archive(self, temporary: Path) -> None:
        """See to the class data archive that halves every start; done once for each cache."""
        if self._java is None or self._java.archive.is_file():
            return
        lock = self._java.archive.with_suffix(".lock")
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self._java.archive.is_file():
                return
            self._report("preparing a class data archive (once)")
            timeline, self.timeline = self.timeline, Timeline()
            try:
                plain = Security("PLAINTEXT")
                trainee = self._new_set(temporary / "training", count=1, security=plain)
                trainee.format()
                trainee.train_archive()
            finally:
                self.timeline = timeline
