"""Test outages derived from events: one for all clients, until one of them reaches all leaders."""

from __future__ import annotations

from typing import Any

from odradek.cli.demo.timeline import Noticed
from odradek.cli.pipeline.outages import Outages


def event(at: float, kind: str, client: str = "driver", **fields: Any) -> Noticed:
    return Noticed(at, 1, client, kind, fields)


def test_an_outage_seen_by_several_clients_is_one_and_ends_with_complete_metadata() -> None:
    watch = Outages("main")
    assert watch.notice([event(1, "disconnected"), event(1, "dial_failed")]) == []
    [begun] = watch.notice([event(2, "rebootstrap", why="all gone"), event(3, "round_failed", "b")])
    assert watch.current is begun
    assert (begun.begun, begun.why, begun.seconds) == (2, "all gone", None)
    # A response to a client that had not lost its connections doesn't end the outage.
    assert watch.notice([event(4, "metadata", "c", leaderless=0)]) == []
    assert watch.notice([event(5, "metadata", "b", leaderless=2)]) == []
    assert watch.notice([event(6, "metadata", "b", leaderless=0)]) == [begun]
    assert begun.seconds == 4
    assert len(watch.found) == 1
    # A client that notices the same outage late doesn't start a second one.
    assert watch.notice([event(7, "round_failed"), event(8, "metadata", leaderless=0)]) == []
    assert watch.landed(9) is begun
    assert watch.landed(10) is None
    assert begun.to_dict()["rows_after_s"] == 3


def test_a_later_outage_is_a_new_one_and_closed_clients_are_forgotten() -> None:
    watch = Outages("main")
    watch.notice([event(1, "round_failed"), event(2, "closed"), event(3, "round_failed", "b")])
    assert len(watch.found) == 1
    watch.notice([event(4, "metadata", "b", leaderless=0)])
    [second] = watch.notice([event(5, "round_failed")])
    assert (second.begun, second.why) == (5, "no broker answers")
    assert second.to_dict()["seconds"] is None
