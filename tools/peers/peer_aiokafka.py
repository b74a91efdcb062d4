"""Run aiokafka's own tests with our module in its place and our brokers: a pytest plugin.

In: aiokafka's tests below `tests/`. Out: the fixtures that they use, in place of their containers.
Tests that access internals of aiokafka or compare messages are skipped with that reason.
"""

import asyncio
import gc
import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module

import pytest
from peer_report import stand_in

from odradek.testing import LocalCluster

KAFKA_VERSION = "4.0.0"
INSIDE = re.compile(
    r"\b(?:consumer|producer|admin|batch|self)\w*\._(?!_|cleanup|messages|test_|loop\b|super)\w+"
    r"|\bmock\.|\bMock\(|ClusterMetadata|ProduceResponse|FetchRequest|MemoryRecords"
    r"|TransactionState|_txn_manager|\b_coordinator\b|\b_subscription\b"
)
"""Source text by which tests that access internals of aiokafka are recognized."""
WORDS = re.compile(r"assertRaisesRegex|assertWarnsRegex|match=")
CONTAINERS = re.compile(r"gssapi|kerberos|docker|ssl_folder|ssl_port")
MISSING_CALLS = re.compile(
    r"describe_configs|alter_configs|create_partitions|consumer_group|find_coordinator"
    r"|delete_records|ConfigResource|NewPartitions|RecordsToDelete"
)
"""Admin calls that odradek's module doesn't have."""


class Client:
    """Replacement for `producer.client`, with which the tests' helpers wait for a topic."""

    def __init__(self, producer):
        self.producer = producer
        self.asked = ""

    def add_topic(self, topic):
        """Remember the topic that the tests wait for."""
        self.asked = topic

    async def force_metadata_update(self):
        """Wait until the remembered topic exists."""
        return await self.producer.partitions_for(self.asked)

    @property
    def cluster(self):
        """This object, which also lists the topics."""
        return self

    def topics(self):
        """Return the names of all known topics: only the one that was requested."""
        return {self.asked}


package = stand_in("aiokafka")
for module, name in (("new_partitions", "NewPartitions"), ("records_to_delete", "RecordsToDelete")):
    theirs = getattr(import_module(f"aiokafka.admin.{module}"), name)
    setattr(import_module("aiokafka.admin"), name, theirs)  # for tests' imports
package.AIOKafkaProducer.client = property(Client)


def text_of(item: pytest.Item) -> str:
    """Return a test's source, with that of the helpers of its class."""
    text = inspect.getsource(item.function)
    for name in set(re.findall(r"self\.(\w+)\(", text)):
        helper = vars(item.cls or object).get(name)
        if inspect.isfunction(helper) and not name.startswith("test"):
            text += inspect.getsource(helper)
    return text


def left_out(item: pytest.Item) -> str:
    """Return why a test is skipped; empty if it runs."""
    text = text_of(item)
    for pattern, why in (
        (CONTAINERS, "asks for its container"),
        (INSIDE, "reaches inside"),
        (MISSING_CALLS, "asks for calls that its module here lacks"),
        (WORDS, "compares words"),
    ):
        if found := pattern.search(text):
            return f"{why} ({found[0]})"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Accept the command-line option that aiokafka's tests define."""
    parser.addoption("--docker-image", default=None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that don't test aiokafka's public behaviour."""
    for item in items:
        if not os.environ["PEER_ALL"] and (why := left_out(item)):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="class")
def loop():
    """Return an event loop for the tests of a class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop) -> None:
    """Set the class attributes that tests without a broker use."""
    request.cls.loop = loop


@pytest.fixture(scope="session")
def peer_cluster() -> Iterator[str]:
    """Start a broker that creates topics with two partitions, as aiokafka's; return host:port."""
    if servers := os.environ["PEER_SERVERS"]:
        yield servers
        return
    with LocalCluster(1, auto_create_topics=True, config={"num.partitions": "2"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def peer_cluster_with_users() -> Iterator[LocalCluster]:
    """Start a broker with SASL where everything is permitted unless an ACL denies it."""
    with LocalCluster(
        1,
        auto_create_topics=True,
        config={"num.partitions": "2", "allow.everyone.if.no.acl.found": "true"},
        security="SASL_PLAINTEXT",
        mechanisms=("PLAIN", "SCRAM-SHA-256"),
        users={"test": "test"},
        acls=True,
    ) as cluster:
        yield cluster


class Rules:
    """Replacement for their `acl_manager`: runs Kafka's tool without a container."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.added: list[list[str]] = []

    def tool(self, *arguments: str) -> None:
        """Run Kafka's ACL tool with these arguments."""
        self.cluster.run_tool(
            "org.apache.kafka.tools.AclCommand", [*self.cluster.tool_arguments(), *arguments]
        )

    def add_acl(self, **rule: str) -> None:
        """Add an ACL, given as the tool's options."""
        named = {"allow_principal": "User:", "deny_principal": "User:"}
        words = []
        for name, value in rule.items():
            words.append("--" + name.replace("_", "-"))
            if value is not True:
                words.append(named.get(name, "") + value)
        self.tool("--add", *words)
        self.added.append(words)

    def list_acl(self) -> None:
        """Do nothing: aiokafka's tests only check that the tool works."""

    def cleanup(self) -> None:
        """Remove the ACLs that the test has added."""
        for words in self.added:
            self.tool("--remove", "--force", *words)
        self.added.clear()


class Users:
    """Replacement for their `kafka_config`: users are created with the cluster."""

    def add_scram_user(self, username: str, password: str) -> None:
        """Accept only the existing user."""
        if (username, password) != ("test", "test"):
            raise ValueError(f"there is no user {username}")


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop) -> None:
    """Set the class attributes that tests with a broker use."""
    users = request.cls.__name__ == "TestKafkaSASL"
    cluster = request.getfixturevalue("peer_cluster_with_users" if users else "peer_cluster")
    host, _, port = (cluster.bootstrap_servers if users else cluster).partition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [f"{host}:{port}"]
    request.cls.kafka_version = KAFKA_VERSION
    if users:
        request.cls.kafka_sasl_plain_port = int(port)
        request.cls.acl_manager = Rules(cluster)
        request.cls.kafka_config = Users()
