"""Run confluent-kafka's own tests with our module in its place and our brokers: a pytest plugin.

In: confluent-kafka's tests below `tests/`. Out: the fixtures and the environment that these tests
use. Their clusters in containers and their Schema Registry aren't available; tests that need one of
these are skipped with that reason.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from peer_report import Absent, absent, stand_in

from odradek.testing import LocalCluster

REGISTRY = "asks for a Schema Registry"
NOWHERE = "127.0.0.1:9"
"""Address for tests without a broker; odradek's clients require bootstrap.servers."""
CONTAINERS = "asks for a cluster in containers"
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""ACLs can be created, and don't restrict clients without authentication."""

sys.meta_path.insert(
    0,
    Absent(
        {
            "confluent_kafka.schema_registry": REGISTRY,
            "confluent_kafka.avro": REGISTRY,
            "trivup": CONTAINERS,
        }
    ),
)
package = stand_in("confluent_kafka")
THEMSELVES = bool(os.environ.get("PEER_THEMSELVES"))
if not THEMSELVES:
    sys.modules["confluent_kafka.cimpl"] = package
SHARE = "asks for share groups (KIP-932), which aren't in this release"
for name in ("ShareConsumer", "DeserializingShareConsumer", "AcknowledgeType", "Messages"):
    if not hasattr(package, name):
        setattr(package, name, absent(name, SHARE))  # imported by tests' helpers


@pytest.fixture(scope="session")
def peer_cluster() -> Iterator[str]:
    """Return the brokers named in `PEER_SERVERS`; if it is empty, start a broker."""
    if servers := os.environ["PEER_SERVERS"]:
        yield servers
        return
    with LocalCluster(1, auto_create_topics=True, config=WITH_ACLS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session", autouse=True)
def bootstrap_servers_where_none_is_given() -> None:
    """Add bootstrap servers to the clients of tests that configure none."""
    if THEMSELVES:
        return
    settings = sys.modules["confluent_kafka.settings"]
    given = settings.given

    def with_servers(kind, config, keywords=None):
        if isinstance(config, dict):
            config = {"bootstrap.servers": NOWHERE, **config}
        return given(kind, config, keywords)

    for module in list(sys.modules.values()):
        if getattr(module, "given", None) is given:
            module.given = with_servers


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request: pytest.FixtureRequest) -> None:
    """Let confluent-kafka's fixture `kafka_cluster` use the brokers of `peer_cluster`."""
    if fixturedef.argname == "kafka_cluster":
        os.environ["BROKERS"] = request.getfixturevalue("peer_cluster")
