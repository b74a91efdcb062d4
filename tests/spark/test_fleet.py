"""Check that a fleet on Spark has the same results as in one process, with any number of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession
from tests.volume import WHOLE

from odradek.simulation.measurements.fleet import Case, Load
from odradek.simulation.measurements.fleet_slices import FleetPlan
from odradek.spark.analytics.fleet_shards import default_shards, simulate_shards


def test_one_two_and_eight_shards_have_the_results_of_one_process(spark: SparkSession) -> None:
    cases = (Case("odradek", 3, 5.0, 4), Case("java", 3, 5.0, 4, (("linger.ms", "5"),)))
    whole = FleetPlan(cases, 16, 16)
    here = added(cases, [[whole.run(part)] for part in whole.slices()])
    assert all(load.clients == 16 for load in here)
    divided = ((whole, 1), (FleetPlan(cases, 16, 8), 2), (FleetPlan(cases, 16, 4), 8))
    for plan, shards in divided if WHOLE else divided[2:]:
        waves = list(simulate_shards(spark, plan, plan.slices(), shards))
        assert len(waves) == len(plan.slices()) // shards
        assert added(cases, [loads for _, loads in waves]) == here
    assert default_shards(spark) == 16


def added(cases: Sequence[Case], found: Sequence[Sequence[Load]]) -> list[Load]:
    totals = [Load(case) for case in cases]
    for loads in found:
        for load in loads:
            totals[cases.index(load.case)].add(load)
    return totals


def test_a_client_that_fails_ends_the_run_with_its_error(spark: SparkSession) -> None:
    plan = FleetPlan((Case("nobody's", 1, 1.0),), 1, 1)
    with pytest.raises(Exception, match="nobody's"):
        list(simulate_shards(spark, plan, plan.slices(), 1))
