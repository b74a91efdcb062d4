"""Test the errors for groups that don't exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.cli.groups.lookup import all_consumer_groups, describe, list_groups, look
from odradek.cli.groups.rendering import lags, read
from odradek.clients.admin.group_offsets import ShareGroupOffset
from odradek.clients.admin.groups import SHARE, GroupListing
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import GroupIdNotFoundError, UnknownServerError
from odradek.common.types import TopicPartition


def run(topics: Any, **more: Any) -> Any:
    """Return a command's run with a fake admin client; `more` replaces its methods."""

    def nothing(groups: list[str], *_: Any) -> Any:
        return {}, {g: GroupIdNotFoundError(f"group {g}: not found") for g in groups}

    names = ("consumer", "share", "streams")
    calls = {f"describe_{kind}_groups": nothing for kind in names} | more
    admin = SimpleNamespace(list_topics=topics, **calls)
    return SimpleNamespace(admin=admin, left=lambda: 1.0, each=lambda call, *_: call())


def test_the_error_for_a_topic_name_says_that_it_is_a_topic() -> None:
    found, failed = describe(run(lambda _: ["flights"]), ["billing", "flights"])
    assert found == {}
    assert str(failed["billing"]) == "group billing: not found"
    assert "flights is a topic, but this command takes group ids" in str(failed["flights"])
    assert isinstance(failed["flights"], GroupIdNotFoundError)


def test_a_missing_group_is_reported_even_if_topics_cannot_be_listed() -> None:
    def refused(_: float) -> Any:
        raise KafkaError("no right")

    _, failed = describe(run(refused), ["flights"])
    assert str(failed["flights"]) == "group flights: not found"


def test_groups_of_responding_brokers_are_listed_even_if_another_broker_fails() -> None:
    """If groups are described afterwards, listing them may take only half of the timeout."""
    given = []
    listing = GroupListing("a", "consumer", "Stable", "Consumer")
    error = KafkaTimeoutError("broker 2 is silent")

    def refused(timeout: float, **_: Any) -> Any:
        given.append(timeout)
        raise error.beside({1: [listing], 3: []}, {2: error})

    asked = run(None, list_groups=refused)
    assert list_groups(asked, 1.0) == ([listing], {2: error})
    assert all_consumer_groups(asked) == (["a"], {2: error})
    assert given == [1.0, 0.5]

    def nobody(timeout: float, **_: Any) -> Any:
        raise error.beside({}, {1: error, 2: error})

    with pytest.raises(KafkaTimeoutError):
        list_groups(run(None, list_groups=nobody), 1.0)


def test_an_error_for_one_partition_of_a_share_group_keeps_its_other_partitions() -> None:
    at, bad = TopicPartition("t", 0), TopicPartition("t", 1)
    error = UnknownServerError("down")
    offsets = {at: ShareGroupOffset(3, 0, 1), bad: ShareGroupOffset(-1, error=error)}
    group = SimpleNamespace(group_id="s", type=SHARE, state="Stable", members=())
    given = run(
        lambda _: [],
        describe_consumer_groups=lambda *_: ({"s": group}, {}),
        list_share_group_offsets=lambda *_: ({"s": offsets}, {}),
    )
    looks, failed = look(given, ["s"])
    assert failed == {bad: error}
    told = read(looks["s"])
    assert [(p["start_offset"], p["error"]) for p in told["partitions"]] == [
        (3, None),
        (None, "UnknownServerError: down"),
    ]
    assert (told["lag"], told["lag_unknown"]) == (1, 1)
    assert [row[-1] for row in lags(looks.values()).rows] == [None, "UnknownServerError: down"]
