"""Test the last line of `odradek explain`, which says how many brokers answer."""

from __future__ import annotations

import pytest

from odradek.cli.explain.explanation_text import verdict
from odradek.clients.admin.reachability import AddressReach, Reachability
from odradek.common.errors import KafkaError, KafkaTimeoutError

SILENT = KafkaTimeoutError("nothing came back")


def reach(*errors: KafkaError | None, absent: tuple[int, ...] = ()) -> Reachability:
    addresses = tuple(AddressReach(f"h:{i}", False, (i,), e, 0) for i, e in enumerate(errors))
    return Reachability("c", addresses, (), absent, None)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (reach(None), "the only broker answers (0.5 s)"),
        (reach(None, None), "all 2 brokers answer (0.5 s)"),
        (reach(None, SILENT, SILENT), "partly: 1 of 3 brokers answers (0.5 s)"),
        (reach(None, None, absent=(7,)), "partly: all 2 brokers answer (0.5 s)"),
        (reach(SILENT), "no broker answers (0.5 s)"),
    ],
)
def test_the_last_line_says_how_many_brokers_answer(found: Reachability, words: str) -> None:
    assert verdict(found, None, 0.5) == words


def test_an_unreachable_cluster_is_reported_with_the_error() -> None:
    assert verdict(None, SILENT, 0.5) == "the cluster wasn't reached in 0.5 s (KafkaTimeoutError)"
