"""Requests of admin clients to coordinators: cached, batched per broker (KIP-699, KIP-709).

A group that fails doesn't affect the results of the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek import Admin, KafkaTimeoutError, TopicPartition
from odradek.clients.admin import coordinators
from odradek.clients.batched_calls import MAX_CONCURRENT_FLOWS
from odradek.clients.coordinator import CoordinatorKind
from odradek.errors import GroupAuthorizationError, GroupIdNotFoundError
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.simulation.brokers.broker_faults import slow_api

T0 = TopicPartition("t", 0)
GROUPS = [f"g{n}" for n in range(8)]
COMMITTED = dict.fromkeys(GROUPS, 1)
LOADING, UNAVAILABLE, NOT_COORDINATOR, REFUSED = 14, 15, 16, 30


class Scene(Stage):
    """Eight groups at three brokers, and an admin client with no cached coordinators."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        with self.client(Admin, "before") as before:
            for group in GROUPS:
                before.alter_group_offsets(group, {T0: 1})
        self.admin = self.client(Admin, "admin", background=False, **config)
        self.admin.describe_cluster()
        self.asked: Counter[str] = Counter()
        self.cluster.observers.append(self._note)

    def _note(self, _: Any, client: str, request: Any) -> None:
        if client == "admin" and request.body is not None:
            self.asked[request.body.API_NAME] += 1

    def place(self, group: str) -> int:
        return self.cluster.groups.index(group)

    def coordinator(self, group: str) -> int:
        leader = self.cluster.leader("__consumer_offsets", self.place(group))
        assert leader is not None
        return leader.id

    def led_by(self, broker: int) -> set[str]:
        return {group for group in GROUPS if self.coordinator(group) == broker}

    def committed(self, **how: Any) -> dict[str, int]:
        found = self.admin.list_group_offsets(GROUPS, **how)
        return {group: offsets[T0].offset for group, offsets in found.items()}


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    assert len({made.coordinator(group) for group in GROUPS}) == 3
    return made


def test_each_coordinator_gets_one_request_for_all_of_its_groups(scene: Scene) -> None:
    assert scene.committed() == COMMITTED
    assert (scene.asked["FindCoordinator"], scene.asked["OffsetFetch"]) == (1, 3)
    found = scene.admin.describe_consumer_groups(GROUPS)
    assert list(found) == GROUPS, "in the order asked for"
    assert {g: d.coordinator for g, d in found.items()} == {g: scene.coordinator(g) for g in GROUPS}
    assert scene.asked["FindCoordinator"] == 1, "what is known isn't asked for"
    assert (scene.asked["ConsumerGroupDescribe"], scene.asked["DescribeGroups"]) == (3, 3)


def test_a_listed_group_is_described_by_the_broker_that_lists_it(scene: Scene) -> None:
    scene.admin.list_groups()
    assert scene.committed() == COMMITTED
    scene.admin.delete_groups(GROUPS)
    assert scene.asked["FindCoordinator"] == 0
    assert scene.asked["DeleteGroups"] == 8, "whether an answer was lost is each group's own"


def test_coordinators_of_groups_to_change_are_found_in_one_request(scene: Scene) -> None:
    scene.admin.delete_groups(GROUPS)
    assert (scene.asked["FindCoordinator"], scene.asked["DeleteGroups"]) == (1, 8)
    assert scene.admin.list_groups() == []


def test_calls_find_a_coordinator_that_moved(scene: Scene) -> None:
    scene.committed()
    for place in {scene.place(group) for group in GROUPS}:
        scene.cluster.move_leader("__consumer_offsets", place)
    begin = scene.world.now
    assert scene.committed() == COMMITTED
    assert scene.world.now - begin < 1.0
    assert scene.asked["FindCoordinator"] <= 3
    scene.admin.alter_group_offsets("g0", {T0: 2})
    assert scene.committed() == {**COMMITTED, "g0": 2}


def test_new_coordinators_are_found_after_a_broker_dies(scene: Scene) -> None:
    scene.committed()
    scene.cluster.crash(scene.coordinator("g0"))
    begin = scene.world.now
    assert scene.committed(timeout=30.0) == COMMITTED
    assert scene.world.now - begin < 15.0


def test_a_different_cluster_clears_the_cached_coordinators(scene: Scene) -> None:
    """The other cluster's brokers may have the same ids."""
    scene.committed()
    scene.cluster.move(after=1.0)
    scene.world.advance(1.5)
    assert scene.committed(timeout=30.0) == COMMITTED


def test_coordinators_are_cached_up_to_a_limit_and_only_for_one_cluster(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "MOST_KNOWN", 3)
    engine: Any = scene.admin._engine
    known = engine.coordinators
    assert scene.committed() == COMMITTED
    assert len(known._ids) == 3
    kind = CoordinatorKind.GROUP
    known.found(kind, "g", 1)
    assert known.get(kind, "g") == 1
    known.found(kind, "h", 99)
    assert known.get(kind, "h") is None, "there is no such broker"
    engine.metadata.cluster_id = "another"
    assert known.get(kind, "g") is None


def test_many_groups_are_split_into_several_requests(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "MOST_IN_ONE", 2)
    assert scene.committed() == COMMITTED
    requests = sum(-(-len(scene.led_by(broker)) // 2) for broker in (1, 2, 3))
    assert scene.asked["OffsetFetch"] == requests > 3


def test_old_brokers_get_one_find_coordinator_request_per_group(scene: Scene) -> None:
    """FindCoordinator contains a list of keys since version 4."""
    scene.cluster.versions[FindCoordinatorRequest.API_KEY] = (0, 3)
    scene.disconnect()
    assert scene.committed() == COMMITTED
    assert (scene.asked["FindCoordinator"], scene.asked["OffsetFetch"]) == (8, 3)


@pytest.mark.parametrize("code", [LOADING, UNAVAILABLE, NOT_COORDINATOR])
@pytest.mark.parametrize(
    ("request_", "call"),
    [
        (DescribeGroupsRequest, "describe_consumer_groups"),
        (ConsumerGroupDescribeRequest, "describe_consumer_groups"),
        (OffsetFetchRequest, "list_group_offsets"),
    ],
)
def test_a_group_with_a_retriable_error_does_not_delay_other_groups(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, request_: Any, call: str, code: int
) -> None:
    refusing = True

    def refuse(answer: Any) -> None:
        for group in answer.groups:
            if group.group_id == "g0" and refusing:
                group.error_code = code

    spoil_answers(monkeypatch, request_.API_KEY, refuse)
    begin = scene.world.now
    with pytest.raises(KafkaTimeoutError) as late:
        getattr(scene.admin, call)(GROUPS, timeout=4.0)
    assert scene.world.now - begin <= 4.1
    assert sorted(late.value.results) == GROUPS[1:]
    assert list(late.value.errors) == ["g0"]
    refusing = False
    assert list(getattr(scene.admin, call)(GROUPS)) == GROUPS


@pytest.mark.parametrize("code", [UNAVAILABLE, REFUSED, -1])
def test_a_missing_coordinator_does_not_delay_other_groups(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """An unknown error may concern only the broker that returns it, so other brokers are asked."""

    def refuse(answer: Any) -> None:
        for found in answer.coordinators:
            if found.key == "g0":
                found.error_code = code

    spoil_answers(monkeypatch, FindCoordinatorRequest.API_KEY, refuse)
    begin = scene.world.now
    kind = GroupAuthorizationError if code == REFUSED else KafkaTimeoutError
    with pytest.raises(kind, match="g0") as late:
        scene.admin.list_group_offsets(GROUPS, timeout=4.0)
    assert scene.world.now - begin <= (0.5 if code == REFUSED else 4.1)
    assert sorted(late.value.results) == GROUPS[1:]
    assert list(late.value.errors) == ["g0"]


def test_a_silent_coordinator_does_not_delay_groups_of_other_coordinators(scene: Scene) -> None:
    scene.committed()
    silent = scene.coordinator("g0")
    scene.cluster.go_silent(silent)
    with pytest.raises(KafkaTimeoutError, match=f"broker {silent}") as late:
        scene.admin.describe_consumer_groups([*GROUPS, "nobody"], timeout=4.0)
    assert set(late.value.results) == set(GROUPS) - scene.led_by(silent)
    assert scene.led_by(silent) <= set(late.value.errors)
    if scene.coordinator("nobody") != silent:
        assert isinstance(late.value.errors["nobody"], GroupIdNotFoundError)


def test_groups_that_can_not_be_changed_do_not_delay_other_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More groups fail than the client changes concurrently."""
    stage = Stage()
    groups = [f"g{n:03}" for n in range(3 * MAX_CONCURRENT_FLOWS)]
    bad = set(groups[: MAX_CONCURRENT_FLOWS + 1])
    admin = stage.client(Admin, "admin", background=False)
    for group in groups:
        admin.alter_group_offsets(group, {T0: 1})

    def refuse(answer: Any) -> None:
        for found in answer.results:
            if found.group_id in bad:
                found.error_code = LOADING

    spoil_answers(monkeypatch, DeleteGroupsRequest.API_KEY, refuse)
    begin = stage.world.now
    with pytest.raises(KafkaTimeoutError) as late:
        admin.delete_groups(groups, timeout=8.0)
    assert stage.world.now - begin <= 8.1
    assert set(late.value.errors) == bad
    assert set(late.value.results) == set(groups) - bad


@pytest.mark.parametrize("call", ["list_group_offsets", "delete_groups"])
def test_groups_with_a_known_coordinator_do_not_wait_for_find_coordinator(
    scene: Scene, call: str
) -> None:
    """Groups of the broker that looks coordinators up do wait: it answers requests in order."""
    known = set(GROUPS[:6])
    scene.admin.list_group_offsets([*known])
    slow_api(scene.cluster, "FindCoordinator", 60.0)
    asked: set[int] = set()

    def note(broker: Any, client: str, request: Any) -> None:
        if request.body is not None and request.body.API_NAME == "FindCoordinator":
            asked.add(broker.id)

    scene.cluster.observers.append(note)
    with pytest.raises(KafkaTimeoutError) as late:
        getattr(scene.admin, call)(GROUPS, timeout=1.5)
    assert len(asked) == 1
    assert set(late.value.results) >= known - scene.led_by(*asked) != set()


def test_a_slow_response_is_used_although_the_coordinator_is_looked_up_again(scene: Scene) -> None:
    scene.committed()
    slow_api(scene.cluster, "OffsetFetch", 3.0)
    slow_api(scene.cluster, "FindCoordinator", 20.0)
    begin = scene.world.now
    assert scene.committed(timeout=30.0) == COMMITTED
    assert scene.world.now - begin < 3.5
    assert all(scene.admin._engine.coordinators.get(CoordinatorKind.GROUP, g) for g in GROUPS)
