"""R-RB-7 with few runs: recovery is fast, Java's criterion is slower, runs are deterministic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.volume import part, some

from odradek.simulation.measurements.recovery import RecoveryFault, RecoveryRun, busiest, recover
from odradek.simulation.measurements.recovery_figures import GOALS, figures, percentile

RUNS = part(12, 2)
TRANSIENT = [f for f in RecoveryFault if not f.total]


@pytest.mark.parametrize("fault", TRANSIENT, ids=lambda f: f.value)
@pytest.mark.parametrize("brokers", [1, 3, 10])
def test_clients_recover_within_the_limits(brokers: int, fault: RecoveryFault) -> None:
    found = figures(fault, [recover(brokers, fault, seed) for seed in range(RUNS)])
    assert found["never"] == 0
    assert found["missed"] == []
    assert found["rebootstraps"]["max"] <= 1  # R-RB-4: one rebootstrap per outage


@pytest.mark.parametrize("fault", [RecoveryFault.REFUSED, RecoveryFault.SILENT])
def test_recovery_takes_no_longer_in_a_cluster_of_a_hundred_brokers(fault: RecoveryFault) -> None:
    runs = [recover(100, fault, seed, partitions=p) for seed, p in enumerate((1, 20, 100))]
    assert figures(fault, runs)["missed"] == []


def test_an_outage_of_five_minutes_costs_few_connection_attempts() -> None:
    for fault in (RecoveryFault.OUTAGE_REFUSED, RecoveryFault.OUTAGE_BLACKHOLED):
        found = figures(fault, [recover(3, fault, seed) for seed in range(2)])
        assert found["missed"] == []
        assert found["dials"]["max"] > 15  # the client still tries
        assert found["never"] == 0


def test_with_javas_criterion_ten_black_holed_brokers_take_longer_than_a_minute() -> None:
    runs = [recover(10, RecoveryFault.BLACKHOLED, seed, strategy="java") for seed in range(2)]
    assert figures(RecoveryFault.BLACKHOLED, runs)["contact"]["p99"] is None


def test_with_javas_criterion_a_single_refusing_broker_leads_to_a_rebootstrap() -> None:
    runs = [recover(1, RecoveryFault.REFUSED, seed, strategy="java") for seed in range(6)]
    found = figures(RecoveryFault.REFUSED, runs)
    assert found["contact"]["p99"] < 2.0
    assert found["never"] == 0


@pytest.mark.parametrize("fault", [RecoveryFault.BLACKHOLED, RecoveryFault.OUTAGE_REFUSED])
def test_recovery_times_and_attempts_are_counted_by_the_network(
    fault: RecoveryFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recover(3, fault, 7)
    monkeypatch.setattr("odradek.simulation.measurements.recovery._Recovery._event", ignored)
    assert recover(3, fault, 7) == replace(told, metadata_requests=0, rebootstraps=0)
    assert None not in (told.contact, told.ack)


def ignored(measurement: object, event: object) -> None:
    """Ignore an event of a client."""


@pytest.mark.parametrize("strategy", some(["odradek", "constant", "java", "kip580-literal"], 2))
def test_the_same_seed_leads_to_the_same_run(strategy: str) -> None:
    first, second = (recover(3, RecoveryFault.REFUSED, 7, strategy=strategy) for _ in range(2))
    assert first == second
    others = {recover(3, RecoveryFault.REFUSED, seed, strategy=strategy) for seed in (8, 9)}
    assert first not in others


def test_runs_that_never_recover_count_as_the_slowest() -> None:
    quick, never = RecoveryRun(0.1, 0.2, 3, 2, 1, 1), RecoveryRun(None, None, 300, 6, 0, 1)
    found = figures(RecoveryFault.REFUSED, [quick] * 9 + [never])
    assert found["contact"] == {"p50": 0.1, "p99": None, "max": None}
    assert found["never"] == 1
    assert any("never" in text for text in found["missed"])


def test_exceeded_limits_of_the_recovery_are_listed() -> None:
    late = figures(RecoveryFault.SILENT, [RecoveryRun(13.0, 15.0, 3, 7, 1, 1)])
    assert len(late["missed"]) == 3
    many = figures(RecoveryFault.OUTAGE_REFUSED, [RecoveryRun(0.1, 0.2, 331, 6, 1, 1)])
    assert many["missed"] == ["331 connection attempts in the outage, goal 330"]
    assert set(GOALS) == set(RecoveryFault)


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(n) for n in range(1, 201)]
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (100.0, 198.0)


def test_the_busiest_second_is_found() -> None:
    assert busiest([], 1.0) == 0
    assert busiest([0.0, 0.5, 0.9, 1.0, 3.0], 1.0) == 4
