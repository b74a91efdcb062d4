"""Test that HTML tables for notebooks contain escaped text and have a limited size."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.time_limits import HANG_S

from odradek import AuthenticationError, Producer, TopicPartition
from odradek.admin import ClusterDescription, DelegationToken, TopicDescription
from odradek.clients.admin.reachability import Reachability
from odradek.clients.descriptions import PartitionDescription
from odradek.common.notebooks.display import ShownDict, ShownList, shown
from odradek.common.notebooks.html_tables import LONGEST, arrow_html, html

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e&lt;\"'><img src=x onerror=alert(1)>"
PLAIN_TAGS = {"table", "tr", "th", "td", "p", "b", "br", "details", "summary", "pre"}


class Page(HTMLParser):
    def __init__(self, text: str | None) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[Any] = []
        self.words: list[str] = []
        assert text is not None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words.append(data)


NOTHING = PartitionDescription(0, None, 0, (), (), ())


def topic(name: str, partitions: int = 1) -> TopicDescription:
    return TopicDescription(name, None, False, partitions_of(partitions), frozenset({"READ", name}))


@cache
def partitions_of(count: int) -> tuple[PartitionDescription, ...]:
    return tuple(PartitionDescription(n, 1, 0, (1, 2), (1,)) for n in range(count))


def explained(server: str) -> Any:
    with Producer({"bootstrap.servers": server, "client.id": "<b>ann</b>"}) as producer:
        return producer.explain()


@pytest.mark.parametrize(
    "value",
    [
        shown({HOSTILE: topic(HOSTILE)}),
        shown({TopicPartition(HOSTILE, 1): HOSTILE, TopicPartition("a", 1): 5}),
        shown({"a": {HOSTILE: [HOSTILE]}, HOSTILE: None}),
        shown([topic(HOSTILE), topic("b")]),
        ClusterDescription(HOSTILE, None, (), frozenset({HOSTILE})),
        Reachability(HOSTILE, (), (), (1,), AuthenticationError(HOSTILE)),
        explained("x<i>y:9092"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_html_and_control_characters_in_values_are_escaped(value: Any) -> None:
    page = Page(value._repr_html_())
    assert set(page.tags) <= PLAIN_TAGS
    assert page.attributes == []
    words = "".join(page.words)
    assert "<script>alert(1)</script>\\x1b[2J\\u202e&lt;\"'>" in words or "<b>ann</b>" in words
    assert not set(words) & {"\x1b", "\u202e"}


@pytest.mark.parametrize(
    "made",
    [
        lambda: shown({f"{n}{'&' * 400}": topic("&" * 400, 500) for n in range(2000)}),
        lambda: topic("&" * 1_000_000, 20_000),
        lambda: shown({"a": {str(n): {str(m): "<" * 999 for m in range(99)} for n in range(999)}}),
        lambda: shown(
            [TopicDescription("<" * 900, "<" * 900, True, (), frozenset(map(str, range(9999))))]
            * 9999
        ),
        lambda: shown(
            {n: {n: dict.fromkeys(range(99), NOTHING) for n in range(99)} for n in range(99)}
        ),
    ],
    ids=("topics", "partitions", "dicts", "a list", "nested tables"),
)
def test_the_size_of_the_html_is_limited(made: Callable[[], Any]) -> None:
    text = made()._repr_html_()
    assert 1000 < len(text) < 2 * LONGEST
    assert "… " in text


def test_a_dict_key_that_equals_a_field_of_its_value_is_shown_once() -> None:
    told = Page(html({"a": topic("a"), "b": topic("b")})).words
    assert (told.count("a"), told[0]) == (1, "name")
    renamed = Page(html({"x": topic("a"), "b": topic("b")})).words
    assert renamed.count("b") == 2


def test_a_secret_that_repr_hides_is_not_in_the_html() -> None:
    token = DelegationToken("id-1", b"plugh", "User:ann", "User:ann", ("User:bob",), 1, 2, 3)
    for text in (html([token]), html({"t": token}), html(token)):
        words = Page(text).words
        assert "id-1" in words
        assert "User:bob" in words
        assert "hmac" not in words
        assert "plugh" not in str(text)


def test_results_behave_like_plain_dicts_and_lists() -> None:
    found = shown({"a": 1})
    assert type(found) is ShownDict
    assert (found, repr(found), json.dumps(found)) == ({"a": 1}, "{'a': 1}", '{"a": 1}')
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301
    several = shown([topic("a"), topic("b")])
    assert type(several) is ShownList
    assert several == [topic("a"), topic("b")]
    names = shown(["a", "b"])
    assert yaml.safe_dump(names) == "- a\n- b\n"
    assert shown(None) is None
    place = TopicPartition("a", 1)
    assert shown(place) is place


@pytest.mark.parametrize("value", [shown({"a": topic("a")}), shown([topic("a")])])
def test_copies_and_pickles_of_results_are_plain_dicts_and_lists(value: Any) -> None:
    """Unpickling a result needs no module of odradek except those of the objects in it."""
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301
        assert type(again) in (dict, list)
        assert again == value
    assert b"odradek.common.notebooks.display.Shown" not in pickle.dumps(value, 0).replace(
        b"\n", b"."
    )


@pytest.mark.parametrize("value", [ShownDict(), ShownList(), ShownList(["a"])])
def test_an_empty_result_or_one_without_a_table_has_no_html(value: Any) -> None:
    assert value._repr_html_() is None


def test_an_arrow_schema_is_shown_as_a_table_of_columns() -> None:
    batch = pa.record_batch({"<i>": pa.array([b"x"], pa.binary()), "n": pa.array([1])})
    for data in (batch, batch.schema, pa.Table.from_batches([batch])):
        words = Page(arrow_html(data)).words
        assert words[-9:] == ["column", "type", "null", "<i>", "binary", "yes", "n", "int64", "yes"]
    assert "1 rows, 13 bytes" in Page(arrow_html(batch)).words


@pytest.mark.slow
def test_without_a_notebook_the_html_modules_are_not_imported() -> None:
    code = (
        "import sys, odradek\n"
        "with odradek.Admin({'bootstrap.servers': '127.0.0.1:1'}) as admin: admin.explain()\n"
        "print(*(name for name in ('html', 'odradek.common.notebooks.html_tables', 'IPython')"
        " if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert done.stdout == "\n"
