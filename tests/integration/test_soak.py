"""The short form of `make soak`: a minute of kills, pauses and moves, judged by another client."""

from __future__ import annotations

from tests.soak.soak import Plan, Soak

from odradek.testing import LocalCluster


def test_nothing_is_lost_doubled_or_out_of_order(mortal_cluster: LocalCluster) -> None:
    plan = Plan(seconds=30.0, seed=7, pause=8.0, quiet=(2.0, 5.0), disorder=8.0, rate=100.0)
    lines: list[str] = []
    report = Soak(mortal_cluster, plan, lines.append).run()
    assert report.failures == [], "\n".join([*report.failures, *lines])
    assert report.troubles
    for chain in report.chains.values():
        assert chain["committed"] > 20
