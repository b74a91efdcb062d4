"""Odradek's pytest plugin: the fixtures `kafka_simulation`, `kafka_cluster` and `kafka_topic`.

In: pytest's hooks; markers and options of a test. Out: clusters, which are closed when their tests
end; a section in the report of a test that failed. pytest finds the plugin by its entry point, in
every run of every project that has Odradek installed. Must not: import anything but pytest before a
fixture is used, or affect a run that uses no fixture.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.brokers.shared_clusters import SharedClusters
    from odradek.testing.local_cluster import LocalCluster
    from odradek.testing.simulated import KafkaSimulation

SIMULATION = pytest.StashKey["KafkaSimulation"]()
MARKERS = {
    "kafka_simulation(brokers=3, seed=1, checkers=True, link=None, limit=3600, **cluster)": (
        "configures the fixture kafka_simulation; `cluster`: options of SimulatedCluster"
    ),
    "kafka_cluster(brokers=3, version=None, own=False, **cluster)": (
        "configures the fixture kafka_cluster; own=True: a cluster for this test only; `cluster`: "
        "options of LocalCluster"
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the fixtures' command-line options to pytest."""
    group = parser.getgroup("odradek", "Odradek: Kafka in tests")
    group.addoption(
        "--kafka-seed",
        type=int,
        default=None,
        metavar="N",
        help="Seed of kafka_simulation for tests whose marker sets none [1].",
    )
    parser.addini("kafka_cluster_brokers", "Number of brokers of kafka_cluster.", default="3")
    parser.addini("kafka_cluster_version", "Kafka version of kafka_cluster, like 4.3.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers `kafka_simulation` and `kafka_cluster`."""
    for marker, text in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {text}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the simulation's report to the report of a failed test."""
    report = yield
    simulation = item.stash.get(SIMULATION, None)
    if report.failed and simulation is not None:
        report.sections.append(("kafka_simulation", simulation.report()))
    return report


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test that uses a simulation, unless another plugin runs it."""
    simulation = pyfuncitem.stash.get(SIMULATION, None)
    test = pyfuncitem.obj
    if simulation is None or not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - as pytest itself passes them
    simulation.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def kafka_simulation(request: pytest.FixtureRequest) -> Iterator[KafkaSimulation]:
    """Yield a simulated Kafka cluster in virtual time (`KafkaSimulation`), for this test only.

    Clients created during the test with its bootstrap address run in the simulation, including
    those of the code under test. When the test ends, all clients are closed and the protocol
    invariants of Odradek's clients are checked. Configure it with the marker `kafka_simulation`.
    """
    from odradek.testing.simulated import KafkaSimulation

    marker = request.node.get_closest_marker("kafka_simulation")
    options = dict(marker.kwargs) if marker is not None else {}
    seed = request.config.getoption("--kafka-seed")
    if seed is not None:
        options.setdefault("seed", seed)
    with KafkaSimulation(**options) as simulation:
        request.node.stash[SIMULATION] = simulation
        yield simulation
    simulation.verify()


@pytest.fixture(scope="session")
def kafka_clusters(request: pytest.FixtureRequest) -> Iterator[SharedClusters]:
    """Yield the real clusters of this run: started on first use, closed at the end of the run."""
    from odradek.testing.brokers.shared_clusters import SharedClusters

    with SharedClusters(
        brokers=int(request.config.getini("kafka_cluster_brokers")),
        version=str(request.config.getini("kafka_cluster_version")) or None,
    ) as clusters:
        yield clusters


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_clusters: SharedClusters
) -> Iterator[LocalCluster]:
    """Yield real Kafka brokers on loopback (`LocalCluster`), shared by the tests of a run.

    A test may kill, pause or replace brokers: the fixture restores them afterwards. Topics and
    records of other tests exist too, so use unique names (`kafka_topic`). With the marker
    `kafka_cluster(own=True)` a test gets a cluster of its own.
    """
    from odradek.testing.errors import ClusterStartError

    marker = request.node.get_closest_marker("kafka_cluster")
    options = dict(marker.kwargs) if marker is not None else {}
    own = bool(options.pop("own", False))
    try:
        cluster = kafka_clusters.start(options) if own else kafka_clusters.shared(options)
    except ClusterStartError as error:
        pytest.fail(f"kafka_cluster could not be started: {error}", pytrace=False)
    yield cluster
    if own:
        cluster.close()
    else:
        kafka_clusters.put_right(cluster)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: LocalCluster) -> str:
    """Return the name of a new topic with three partitions on `kafka_cluster`."""
    from odradek.testing.brokers.shared_clusters import make_topic

    return make_topic(kafka_cluster, request.node.name)
