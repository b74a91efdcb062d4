"""The pytest plugin: fixtures, markers and reports, and its cost for tests that don't use it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Self

import pytest

from odradek.testing import simulated
from odradek.testing.brokers import shared_clusters
from odradek.testing.brokers.shared_clusters import SharedClusters
from odradek.testing.errors import JavaNotFoundError

pytest_plugins = ["pytester"]

LOADED = simulated.KafkaSimulation
"""Imported here before pytester runs a test, for the reason given in test_docs_testing."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-W", "error", "--strict-markers", *arguments)


def test_the_plugin_is_found_by_its_entry_point(pytester: pytest.Pytester) -> None:
    done = run(pytester, "--fixtures", "-q")
    done.stdout.fnmatch_lines(["kafka_simulation *odradek/testing/plugin.py*"])
    done = run(pytester, "--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.kafka_simulation(*", "@pytest.mark.kafka_cluster(*"])
    done = run(pytester, "--help")
    done.stdout.fnmatch_lines(["*--kafka-seed=N*"])


@pytest.mark.slow
def test_the_unused_plugin_imports_no_heavy_modules(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            print(*[name for name in sys.modules if name.startswith("odradek")])
            heavy = {"pyarrow", "zstandard", "numpy", "pyspark", "typer"}
            assert heavy.isdisjoint(sys.modules)
        """
    )
    done = pytester.runpytest_subprocess("-W", "error", "-s", "-p", "no:randomly")
    done.assert_outcomes(passed=1)
    loaded = next(line for line in done.stdout.lines if "odradek.testing.plugin" in line)
    names = {word for word in loaded.split() if word.startswith("odradek")}
    light = {"odradek", "odradek.common", "odradek.common.public_names"}
    assert names == light | {"odradek.testing", "odradek.testing.plugin"}


@pytest.mark.slow
def test_the_testing_package_exports_its_names() -> None:
    code = (
        "import odradek.testing, sys;"
        "assert 'odradek.testing.local_cluster' not in sys.modules;"
        "print(*[getattr(odradek.testing, n).__name__ for n in odradek.testing.__all__])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "LocalCluster" in done.stdout.split()
    assert "KafkaSimulation" in done.stdout.split()
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = odradek_testing().Nonsense


def odradek_testing() -> Any:
    import odradek.testing

    return odradek.testing


def test_marker_options_override_options_of_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_plain(kafka_simulation):
            assert (kafka_simulation.seed, len(kafka_simulation.brokers)) == (7, 3)

        @pytest.mark.kafka_simulation(brokers=1, seed=3, cluster_id="mine")
        def test_marked(kafka_simulation):
            assert (kafka_simulation.seed, len(kafka_simulation.brokers)) == (3, 1)
            assert kafka_simulation.cluster_id == "mine"
        """
    )
    run(pytester, "--kafka-seed=7").assert_outcomes(passed=2)


def test_the_report_of_a_failed_test_shows_the_last_events(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(kafka_simulation):
            kafka_simulation.admin().list_topics()
            raise AssertionError("as it happens")
        """
    )
    done = run(pytester)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*- kafka_simulation -*",
            "seed 1, virtual time *",
            "Admin odradek, cluster simulated-cluster-0001",
            "  It works: *",
            "the last * events of admin:",
            "*metadata_request*",
        ]
    )


def test_a_violated_invariant_is_reported_as_an_error_of_the_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from odradek.simulation.checkers.invariants import Violation

        def test_it(kafka_simulation):
            kafka_simulation.checkers.violations.append(Violation("dialled too soon"))

        @pytest.mark.kafka_simulation(checkers=False)
        def test_unchecked(kafka_simulation):
            kafka_simulation.checkers.violations.append(Violation("dialled too soon"))
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*Violation: dialled too soon"])


def test_clients_are_closed_after_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import odradek

        made = []

        def test_one(kafka_simulation):
            made.append((kafka_simulation, kafka_simulation.consumer()))
            odradek.Admin(bootstrap_servers=kafka_simulation.bootstrap_servers).list_topics()

        def test_two():
            simulation, consumer = made.pop()
            assert all(host.closed for host in simulation.world.hosts.values())
            assert len(simulation.world.hosts) == 2
            assert "closed" in repr(consumer)
            admin = odradek.Admin(bootstrap_servers=simulation.bootstrap_servers)
            assert "Simulated" not in type(admin._host).__name__
            admin.close()
        """
    )
    run(pytester, "-p", "no:randomly").assert_outcomes(passed=2)


def test_a_missing_java_is_reported_once_for_all_tests_without_a_traceback(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[dict[str, Any]] = []

    class NoCluster:
        def __init__(self, **options: Any) -> None:
            starts.append(options)

        def __enter__(self) -> None:
            raise JavaNotFoundError("Java 17 or newer is needed: JAVA_HOME is not set.")

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(shared_clusters, "LocalCluster", NoCluster)
    pytester.makeini("[pytest]\nkafka_cluster_brokers = 2\nkafka_cluster_version = 4.3\n")
    pytester.makepyfile(
        """
        def test_one(kafka_cluster): ...
        def test_two(kafka_topic): ...
        """
    )
    done = run(pytester)
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(
        ["kafka_cluster could not be started: Java 17 or newer is needed: JAVA_HOME is not set."]
    )
    assert "Traceback" not in done.stdout.str()
    assert starts == [{"brokers": 2, "version": "4.3"}]  # the start is tried once for all tests


class Brokers:
    """A fake of a local cluster, without broker processes."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.cluster_id = "original"
        self.running = tuple(range(options["brokers"]))
        self.done: list[str] = []
        self.closed = False
        self.broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def restore(self) -> None:
        self.done.append("restore")
        self.cluster_id = "original"

    def resume(self, i: int) -> None:
        self.done.append(f"resume {i}")

    def start(self, i: int) -> None:
        if self.broken:
            raise RuntimeError("it doesn't start")
        self.done.append(f"start {i}")
        self.running = tuple(sorted({*self.running, i}))


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(shared_clusters, "LocalCluster", Brokers)
    return SharedClusters(brokers=2)


def test_tests_with_equal_options_share_a_cluster(clusters: Any) -> None:
    with clusters:
        first = clusters.shared({})
        assert clusters.shared({}) is first
        assert clusters.shared({"brokers": 2}) is first
        other = clusters.shared({"brokers": 1})
        own = clusters.start({})
        assert len({id(c) for c in (first, other, own)}) == 3
    assert first.closed
    assert other.closed
    assert own.closed


def test_changes_that_a_test_made_to_a_shared_cluster_are_undone(clusters: Any) -> None:
    cluster = clusters.shared({})
    cluster.running = (1,)
    cluster.cluster_id = "foreign"
    clusters.put_right(cluster)
    assert cluster.done == ["restore", "resume 1", "start 0"]
    assert cluster.running == (0, 1)


def test_a_cluster_that_cannot_be_restored_is_replaced(clusters: Any) -> None:
    cluster = clusters.shared({})
    cluster.running, cluster.broken = (1,), True
    with pytest.raises(RuntimeError, match="doesn't start"):
        clusters.put_right(cluster)
    assert cluster.closed
    assert clusters.shared({}) is not cluster
