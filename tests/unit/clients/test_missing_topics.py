"""Test the suggestions for misspelt topic names, with few and with very many topics."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from odradek.clients.missing_topics import ALIKE, COMPARED, did_you_mean, similar_names
from odradek.common.printable import cure
from odradek.common.types import Address

MANY = [f"team-{n % 7}.orders.{n:06}.v1" for n in range(50_000)]


@pytest.mark.parametrize("slip", ["Flihgts", "flight", "FLIGHTS", "fligths", "lights"])
def test_a_misspelt_topic_name_is_found_among_few_topics(slip: str) -> None:
    assert similar_names(slip, ["orders", "flights", "counts"]) == ("flights",)


@pytest.mark.parametrize(
    "slip", ["team-3.orders.04001.v1", "team-3.ordres.004000.v1", "Team-3.orders.004000.v2"]
)
def test_a_misspelt_topic_name_is_found_among_many_topics_with_few_comparisons(
    slip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    real = difflib.get_close_matches

    def counted(word: str, possibilities: Any, **more: Any) -> list[str]:
        given = list(possibilities)
        compared.append(len(given))
        return real(word, given, **more)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    found = similar_names(slip, MANY)
    assert 1 <= len(found) <= ALIKE
    assert max(compared) <= COMPARED


def test_without_a_similar_name_nothing_is_suggested() -> None:
    assert similar_names("flights", ["zzz"]) == ()
    assert did_you_mean(()) == ""
    made = "Create it with: odradek topics create 'a b' --bootstrap-server h:1,i:2"
    assert cure("a b", [Address("h", 1), "i:2"]) == made
