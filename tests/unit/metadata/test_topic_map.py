"""Test the immutable map of a snapshot's topics, whose copies share unchanged entries."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.topic_map import TopicMap

NAMES = st.sampled_from("abcdefgh")
CHANGES = st.dictionaries(NAMES, st.one_of(st.none(), st.integers()), max_size=5)


@given(st.dictionaries(NAMES, st.integers()), st.lists(st.tuples(CHANGES, st.integers(0, 9))))
def test_each_version_of_the_map_keeps_its_own_content(
    first: dict[str, int], steps: list[tuple[dict[str, int | None], int]]
) -> None:
    maps = [TopicMap(first)]
    said = [dict(first)]
    for changes, of in steps:
        at = max(0, len(maps) - 1 - of // 3)  # choose mostly the newest map
        maps.append(maps[at].changed(changes))
        now = said[at] | changes
        said.append({k: v for k, v in now.items() if v is not None})
    for found, expected in zip(maps, said, strict=True):
        assert found == expected
        assert len(found) == len(expected)
        assert set(found) == set(expected)
        for name in "abcdefgh":
            assert found.get(name) == expected.get(name)
            assert found.get(name, -1) == expected.get(name, -1)
            assert (name in found) == (name in expected)


def test_adding_a_topic_copies_only_one_entry() -> None:
    before = TopicMap({f"t{n}": n for n in range(10_000)})
    after = before.changed({"new": 1})
    assert after._shared is before._shared
    assert before._changed == {"new": None}
    assert after._changed is None
    assert "new" in after
    assert "new" not in before


def test_a_change_without_effect_returns_the_same_map() -> None:
    one = TopicMap({"t": 1})
    assert one.changed({}) is one
    assert one.changed({"u": None}) is one


def test_the_chain_from_an_old_map_to_newer_maps_has_a_limited_length() -> None:
    old = newest = TopicMap({f"t{n}": n for n in range(100)})
    for n in range(10_000):
        newest = newest.changed({"t1": n})
    row = 0
    here: TopicMap[int] | None = old
    while here is not None:
        row, here = row + 1, here._next
    assert row <= 101
    assert old["t1"] == 1
    assert newest["t1"] == 9_999


def test_unreferenced_old_maps_are_freed_without_the_garbage_collector() -> None:
    gc.disable()  # reference counting alone must free the maps
    try:
        newest = TopicMap({f"t{n}": n for n in range(10)})
        seen = []
        for n in range(100):
            seen.append(weakref.ref(newest))
            newest = newest.changed({"new": n})
        assert not any(one() for one in seen)
    finally:
        gc.enable()
