"""The short form of `make soak`: one of each trouble, judged by another client."""

from __future__ import annotations

from tests.soak.soak import Plan, Soak

from odradek.testing import LocalCluster


def test_nothing_is_lost_doubled_or_out_of_order(mortal_cluster: LocalCluster) -> None:
    plan = Plan(
        seconds=40.0,
        seed=7,
        pause=8.0,
        quiet=(2.0, 3.0),
        disorder=8.0,
        rate=100.0,
        troubles=("kill", "pause", "move"),
    )
    lines: list[str] = []
    report = Soak(mortal_cluster, plan, lines.append).run()
    assert report.failures == [], "\n".join([*report.failures, *lines])
    assert set(report.troubles) == {"kill", "pause", "move"}
    for chain in report.chains.values():
        assert chain["committed"] > 20
