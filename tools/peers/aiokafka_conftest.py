"""What aiokafka's own tests find as their `conftest`: `odradek.compat.aiokafka` in aiokafka's place.

In: `ODRADEK_PEER_SERVERS` (host:port) and `ODRADEK_PEER_REPORT` (a file). Out: the fixtures that
those tests ask for; a line of JSON for each test: its name, its outcome, why. Tests that reach
inside of aiokafka, or ask for containers, are left out and say so.
"""

import ast
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

import pytest

KAFKA_VERSION = "4.0.0"
OURS, THEIRS = "odradek.compat.aiokafka", "aiokafka"


def stand_in() -> None:
    """Have `import aiokafka` give our modules; those that we don't have are aiokafka's own."""
    spec = find_spec(THEIRS)
    root = spec.submodule_search_locations[0]
    ours = import_module(OURS)
    for found in [None, *pkgutil.walk_packages(ours.__path__, OURS + ".")]:
        name = OURS if found is None else found.name
        module = import_module(name)
        alias = THEIRS + name.removeprefix(OURS)
        sys.modules[alias] = module
        if hasattr(module, "__path__"):
            inside = alias.split(".")[1:]
            module.__path__ = [*module.__path__, os.path.join(root, *inside)]


stand_in()

compat = import_module(OURS)


class _Client:
    """What the tests' helpers do with `producer.client`: they wait until a topic is there."""

    def __init__(self, producer):
        self.producer = producer
        self.asked = ""

    def add_topic(self, topic):
        self.asked = topic

    async def force_metadata_update(self):
        return await self.producer.partitions_for(self.asked)

    @property
    def cluster(self):
        return self

    def topics(self):
        return {self.asked}


compat.AIOKafkaProducer.client = property(_Client)

INTERNALS = re.compile(
    r"\b(?:consumer\d?|producer\d?|producer\w*|consumer\w*|c\d|listener|admin|batch)\._(?!_)\w+"
    r"|\bmock\.|\bMock\(|\.client\b|_closed\b|AIOKafkaClient\(|ClusterMetadata|ProduceResponse"
    r"|FetchRequest|MemoryRecords|TransactionState|weakref"
)
"""What a test says that reaches inside."""
CONTAINERS = re.compile(
    r"acl_manager|kerberos|kafka_config|docker|ssl_folder|sasl_\w*port|_ssl_port"
)
HELPERS = re.compile(r"self\.(\w+)\(")


def _body(cls: object, function: object) -> str:
    """A test's text, with that of the helpers of its class."""
    text = inspect.getsource(function)
    for name in set(HELPERS.findall(text)):
        helper = vars(cls).get(name) if isinstance(cls, type) else None
        if helper is not None and not name.startswith("test"):
            text += inspect.getsource(helper)
    return text


def left_out(item: pytest.Item) -> str:
    """Why a test isn't run; empty where it is."""
    text = _body(item.cls, item.function)
    if found := CONTAINERS.search(text):
        return f"asks for its container ({found[0]})"
    if found := INTERNALS.search(text):
        return f"reaches inside ({found[0]})"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if why := left_out(item):
            item.add_marker(pytest.mark.skip(reason=f"left out: {why}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):  # noqa: ANN001, ANN201
    report = (yield).get_result()
    if report.when == "call" or report.outcome != "passed":
        why = ""
        if report.skipped:
            why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        elif report.failed:
            why = str(call.excinfo.exconly())[:300]
        with open(os.environ["ODRADEK_PEER_REPORT"], "a") as lines:
            lines.write(json.dumps([item.nodeid, report.outcome, why, report.when]) + "\n")


@pytest.fixture(scope="class")
def loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    host, _, port = os.environ["ODRADEK_PEER_SERVERS"].partition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [f"{host}:{port}"]
    request.cls.kafka_version = KAFKA_VERSION


def pytest_addoption(parser):
    parser.addoption("--docker-image", default=None)
