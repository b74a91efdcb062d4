"""What aiokafka's own tests find as their `conftest`: our module in aiokafka's place.

In: `PEER_SERVERS` (host:port) and `PEER_REPORT` (a file), from tools/peer_suites.py. Out: the
fixtures that those tests ask for; a line of JSON for each test: its name, its outcome, why. Tests
that reach inside of aiokafka, compare its words or ask for containers are left out, and say so.
"""

import asyncio
import gc
import inspect
import json
import os
import pkgutil
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

KAFKA_VERSION = "4.0.0"
OURS, THEIRS = "odradek.compat.aiokafka", "aiokafka"
INSIDE = re.compile(
    r"\b(?:consumer|producer|admin|batch|self)\w*\._(?!_|cleanup|messages|test_|loop\b|super)\w+"
    r"|\bmock\.|\bMock\(|_closed\b|ClusterMetadata|ProduceResponse|FetchRequest|MemoryRecords"
    r"|TransactionState|_txn_manager|_coordinator\b|_subscription\b"
)
"""What a test says that reaches inside."""
WORDS = re.compile(r"assertRaisesRegex|assertWarnsRegex|match=")
CONTAINERS = re.compile(
    r"acl_manager|kerberos|kafka_config|docker|ssl_folder|sasl_\w*port|ssl_port"
)
ELSEWHERE = re.compile(
    r"describe_configs|alter_configs|create_partitions|consumer_group|find_coordinator"
    r"|delete_records|ConfigResource|NewPartitions|RecordsToDelete"
)
"""Of its admin client: what ours has no call for."""


def stand_in() -> None:
    """Have `import aiokafka` give our modules; those that we don't have are aiokafka's own."""
    spec = find_spec(THEIRS)
    root = Path(next(iter(spec.submodule_search_locations)))
    package = import_module(OURS)
    names = [OURS, *(found.name for found in pkgutil.walk_packages(package.__path__, OURS + "."))]
    for name in names:
        module, alias = import_module(name), THEIRS + name.removeprefix(OURS)
        sys.modules[alias] = module
        if hasattr(module, "__path__"):
            module.__path__ = [*module.__path__, str(root.joinpath(*alias.split(".")[1:]))]


class Client:
    """What the tests' helpers do with `producer.client`: they wait until a topic is there."""

    def __init__(self, producer):
        self.producer = producer
        self.asked = ""

    def add_topic(self, topic):
        """Note it."""
        self.asked = topic

    async def force_metadata_update(self):
        """Wait until it is there."""
        return await self.producer.partitions_for(self.asked)

    @property
    def cluster(self):
        """Where topics are listed."""
        return self

    def topics(self):
        """It is there."""
        return {self.asked}


stand_in()
for module, name in (("new_partitions", "NewPartitions"), ("records_to_delete", "RecordsToDelete")):
    theirs = getattr(import_module(f"{THEIRS}.admin.{module}"), name)
    setattr(import_module(f"{OURS}.admin"), name, theirs)  # tests import them
import_module(OURS).AIOKafkaProducer.client = property(Client)


def text_of(item: pytest.Item) -> str:
    """A test's text, with that of the helpers of its class."""
    text = inspect.getsource(item.function)
    for name in set(re.findall(r"self\.(\w+)\(", text)):
        helper = vars(item.cls or object).get(name)
        if inspect.isfunction(helper) and not name.startswith("test"):
            text += inspect.getsource(helper)
    return text


def left_out(item: pytest.Item) -> str:
    """Why a test isn't run; empty where it is."""
    text = text_of(item)
    for pattern, why in (
        (CONTAINERS, "asks for its container"),
        (INSIDE, "reaches inside"),
        (ELSEWHERE, "asks for what ours has no call for"),
        (WORDS, "compares words"),
    ):
        if found := pattern.search(text):
            return f"{why} ({found[0]})"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take their option."""
    parser.addoption("--docker-image", default=None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what isn't about behaviour."""
    for item in items:
        if why := left_out(item):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Note what became of a test."""
    report = (yield).get_result()
    if report.when == "call" or report.outcome != "passed":
        why = ""
        if report.skipped:
            why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
        elif report.failed:
            why = call.excinfo.exconly().splitlines()[0][:200]
        line = [item.nodeid.removeprefix("tests/"), report.outcome, why.removeprefix("Skipped: ")]
        with Path(os.environ["PEER_REPORT"]).open("a") as lines:
            lines.write(json.dumps(line) + "\n")


@pytest.fixture(scope="class")
def loop():
    """An event loop for the tests of a class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop) -> None:
    """What tests without a broker have."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop) -> None:
    """What tests with a broker have."""
    host, _, port = os.environ["PEER_SERVERS"].partition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [f"{host}:{port}"]
    request.cls.kafka_version = KAFKA_VERSION
