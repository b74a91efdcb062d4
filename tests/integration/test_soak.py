"""Every kind of client through every trouble, beside each other: the short form of `make soak`.

An idempotent producer, a transactional read-process-write chain in each group protocol whose
members come and go, and a group of four in each protocol. Killed and frozen are the brokers that
they need just then. The judgement is record by record, by another client and by the history of all.
"""

from __future__ import annotations

import pytest
from tests.soak.soak import Plan, Report, Soak

from odradek.api.consumer import Consumer
from odradek.testing import LocalCluster

FOREVER = 1e9


def judged(cluster: LocalCluster, plan: Plan) -> tuple[Soak, Report]:
    """Run it; nothing is lost, doubled or out of order, and each trouble came once."""
    lines: list[str] = []
    soak = Soak(cluster, plan, lines.append)
    report = soak.run()
    assert report.failures == [], "\n".join([*report.failures, *lines])
    assert report.troubles == dict.fromkeys(plan.troubles, 1), lines
    assert report.records["in"] == report.records["out-classic"] == report.records["out-consumer"]
    return soak, report


@pytest.mark.timeout(900)
def test_nothing_is_lost_doubled_or_out_of_order(mortal_cluster: LocalCluster) -> None:
    plan = Plan(
        seconds=540.0,  # a bound: it ends after the round, which takes longer on slow machines
        seed=7,
        rate=80.0,
        partitions=8,
        readers=4,
        pause=12.0,  # longer than the session of any member
        quiet=(0.5, 1.0),
        disorder=10.0,
        reader_disorder=FOREVER,
        troubles=("kill", "pause", "move", "roll"),
        rounds=1,
        victims=("reader-classic-0", "reader-consumer-0"),
    )
    soak, report = judged(mortal_cluster, plan)
    for chain in report.chains.values():
        assert chain["committed"] > 20
    for protocol in plan.protocols:
        group = soak.group(protocol)
        # Whoever stays loses nothing by any of it, so that no record comes to a group twice.
        # (On a machine that is too busy for heartbeats a coordinator may take partitions away.)
        assert report.repeats[protocol] == 0 or any(member.lost for member in group), report
        assert [member.joined for member in group] == [1] * 4
        assert [len(member.had) for member in group] == [2] * 4, [m.had for m in group]
        with Consumer(mortal_cluster.client_config(), group_id=f"readers-{protocol}") as observer:
            committed = observer.committed([place for member in group for place in member.seen])
        for member in group:
            for place, seen in member.seen.items():
                found = committed[place]
                assert found is not None
                assert found.offset > max(seen)
