"""Test the outages that are derived from clients' events, one outage for all clients."""

from __future__ import annotations

from typing import Any

from odradek.cli.demo.timeline import Noticed
from odradek.cli.pipeline.outages import Outages


def event(at: float, kind: str, client: str = "driver", **fields: Any) -> Noticed:
    return Noticed(at, 1, client, kind, fields)


def test_an_outage_of_several_clients_counts_once_and_ends_when_all_leaders_are_known() -> None:
    watch = Outages("main")
    assert watch.notice([event(1, "disconnected"), event(1, "dial_failed")]) == []
    [begun] = watch.notice([event(2, "rebootstrap", why="all gone"), event(3, "round_failed", "b")])
    assert watch.current is begun
    assert (begun.begun, begun.why, begun.seconds) == (2, "all gone", None)
    # Metadata of a client that had no outage doesn't end the outage.
    assert watch.notice([event(4, "metadata", "c", leaderless=0)]) == []
    assert watch.notice([event(5, "metadata", "b", leaderless=2)]) == []
    assert watch.notice([event(6, "metadata", "b", leaderless=0)]) == [begun]
    assert begun.seconds == 4
    assert len(watch.found) == 1
    # If a client notices the ended outage late, no second outage begins.
    assert watch.notice([event(7, "round_failed"), event(8, "metadata", leaderless=0)]) == []
    assert watch.landed(9) is begun
    assert watch.landed(10) is None
    assert begun.to_dict()["rows_after_s"] == 3


def test_a_later_outage_counts_separately_and_closed_clients_are_ignored() -> None:
    watch = Outages("main")
    watch.notice([event(1, "round_failed"), event(2, "closed"), event(3, "round_failed", "b")])
    assert len(watch.found) == 1
    watch.notice([event(4, "metadata", "b", leaderless=0)])
    [second] = watch.notice([event(5, "round_failed")])
    assert (second.begun, second.why) == (5, "no broker answers")
    assert second.to_dict()["seconds"] is None
