"""A client survives a single response with an unknown error (-1, or a code of a later release).

At most one error is raised, and the client recovers by itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.spoilt_answers import spoil_answers

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import ClusterAuthorizationError, GroupAuthorizationError

FIND, HEARTBEAT, JOIN, SYNC, INIT, NEW_HEARTBEAT = 10, 12, 11, 14, 22, 68
NOT_FORESEEN = (-1, 9999, 60)
"""An error unknown to the broker, a code unknown to this release, and an error of another API."""
CODES = pytest.mark.parametrize("code", NOT_FORESEEN)


class Answers:
    """Set an error code in the n-th responses of one API, for the given n."""

    def __init__(self, patch: pytest.MonkeyPatch, key: int, code: int, *numbers: int) -> None:
        self.count, self.code, self.numbers = 0, code, numbers
        spoil_answers(patch, key, self._spoil)

    def _spoil(self, answer: Any) -> None:
        self.count += 1
        if self.count in self.numbers:
            for one in getattr(answer, "coordinators", None) or [answer]:
                one.error_code = self.code


def read(scene: Scene, consumer: Any, count: int) -> tuple[list[int], list[KafkaError]]:
    """Poll until `count` records were read; return their values and the errors raised meanwhile."""
    values: list[int] = []
    errors: list[KafkaError] = []
    end = scene.world.now + 60
    while len(values) < count and scene.world.now < end:
        try:
            values += [int(r.value or b"") for r in consumer.poll(1.0)]
        except KafkaError as error:
            errors.append(error)
            assert len(errors) < 30, "the same again and again"
    return sorted(values), errors


def codes(errors: list[KafkaError]) -> list[int | None]:
    """Return the codes of these errors."""
    return [getattr(e, "number", None) or getattr(e, "code", None) for e in errors]


@CODES
@pytest.mark.parametrize("key", [JOIN, SYNC], ids=["join", "sync"])
def test_a_classic_member_raises_the_error_once_and_rejoins(
    monkeypatch: pytest.MonkeyPatch, key: int, code: int
) -> None:
    scene = Scene()
    scene.write(range(20))
    Answers(monkeypatch, key, code, 1)
    with scene.subscribed() as a:
        values, errors = read(scene, a, 20)
        assert values == list(range(20))
        assert codes(errors) == [code]


@CODES
def test_a_member_of_the_new_protocol_raises_the_error_once_and_continues(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    for number in (1, 3):
        scene = Scene("consumer")
        scene.write(range(20))
        with monkeypatch.context() as patch:
            Answers(patch, NEW_HEARTBEAT, code, number)
            with scene.subscribed() as a:
                values, errors = read(scene, a, 20)
                end = scene.world.now + 15
                while scene.world.now < end:  # heartbeats continue
                    try:
                        a.poll(1.0)
                    except KafkaError as error:
                        errors.append(error)
                assert values == list(range(20))
                assert codes(errors) == [code]
                assert "a lost 0 1 2 3" not in scene.log


@CODES
@PROTOCOLS
def test_find_coordinator_is_retried_after_an_unknown_error(
    monkeypatch: pytest.MonkeyPatch, protocol: str, code: int
) -> None:
    scene = Scene(protocol)
    scene.write(range(20))
    Answers(monkeypatch, FIND, code, 1, 2)
    with scene.subscribed() as a:
        assert read(scene, a, 20) == (list(range(20)), [])


@CODES
def test_a_heartbeat_that_failed_is_sent_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    scene = Scene()
    scene.write(range(20))
    answers = Answers(monkeypatch, HEARTBEAT, code, 1, 3)
    with scene.subscribed() as a:
        assert read(scene, a, 20) == (list(range(20)), [])
        scene.write(range(20, 40))
        end = scene.world.now + 12
        values: list[int] = []
        while scene.world.now < end:
            values += [int(r.value or b"") for r in a.poll(1.0)]
        assert sorted(values) == list(range(20, 40))
        assert answers.count > 3
        assert scene.log == ["a assigned 0 1 2 3"], "no rebalance"


def test_heartbeats_that_fail_for_a_whole_session_raise_and_lead_to_a_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    answers = Answers(monkeypatch, HEARTBEAT, -1, *range(1, 10_000))
    with scene.subscribed(session_timeout_ms=6000, heartbeat_interval_ms=1000) as a:
        _, errors = read(scene, a, 1)
        assert errors
        assert set(codes(errors)) == {-1}
        answers.numbers = ()
        scene.write(range(20))
        assert read(scene, a, 20)[0] == list(range(20))


def test_a_permanent_error_is_raised_repeatedly_with_a_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.write(range(20))
    answers = Answers(monkeypatch, JOIN, -1, *range(1, 10_000))
    errors = 0
    with scene.subscribed() as a:
        end = scene.world.now + 30
        while scene.world.now < end:
            try:
                a.poll(1.0)
            except KafkaError:
                errors += 1
        assert 25 <= errors <= answers.count < 50
        answers.numbers = ()
        assert read(scene, a, 20)[0] == list(range(20))


@PROTOCOLS
def test_an_authorization_error_is_raised_until_the_application_subscribes_again(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    scene = Scene(protocol)
    scene.write(range(20))
    key = JOIN if protocol == "classic" else NEW_HEARTBEAT
    answers = Answers(monkeypatch, key, GroupAuthorizationError.code or 0, 1)
    with scene.subscribed() as a:
        for _ in range(3):
            with pytest.raises(GroupAuthorizationError):
                a.poll(1.0)
        assert answers.count == 1
        a.subscribe(["t"])
        assert read(scene, a, 20) == (list(range(20)), [])


@pytest.mark.parametrize("key", [FIND, JOIN])
def test_the_authorization_error_of_a_consumer_names_the_missing_acl(
    monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    scene = Scene()
    Answers(monkeypatch, key, GroupAuthorizationError.code or 0, 1)
    with scene.subscribed() as a:
        with pytest.raises(GroupAuthorizationError) as told:
            a.poll(1.0)
        assert (told.value.operation, told.value.resource) == ("READ", "group 'g'")
        assert "(READ implies DESCRIBE)" in str(told.value)
        assert a.health().cure == "Add an ACL that allows READ on group 'g'."


def test_an_authorization_error_of_a_producer_is_raised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    Answers(monkeypatch, INIT, ClusterAuthorizationError.code or 0, 1)
    with scene.producer() as producer, pytest.raises(ClusterAuthorizationError) as told:
        producer.send("t", b"1", partition=0).result(10)
    assert str(told.value).count("needs WRITE on a topic (before Kafka 3.0: IDEMPOTENT_WRITE") == 1


@CODES
def test_a_producer_requests_its_id_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    scene = Scene()
    Answers(monkeypatch, INIT, code, 1, 2)
    with scene.producer() as producer:
        assert producer.send("t", b"1", partition=0).result(10).offset == 0


def test_records_time_out_if_the_producer_never_gets_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    answers = Answers(monkeypatch, INIT, -1, *range(1, 1000))
    with scene.producer(delivery_timeout_ms=8000, request_timeout_ms=2000) as producer:
        begin = scene.world.now
        with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
            producer.send("t", b"1", partition=0).result(20)
        assert 8.0 <= scene.world.now - begin <= 8.1
        assert answers.count < 40  # retried with a backoff


@CODES
def test_a_transaction_continues_after_a_failed_lookup_of_its_coordinator(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    scene = Scene()
    Answers(monkeypatch, FIND, code, 1)
    with scene.transactional() as producer:
        producer.begin_transaction()
        producer.send("t", b"1", partition=0)
        producer.commit_transaction(30)
