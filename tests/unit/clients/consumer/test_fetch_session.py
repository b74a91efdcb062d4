"""Test incremental fetch sessions: content of requests, and effect of responses."""

from __future__ import annotations

import pytest

from odradek.clients.consumer.fetching.fetch_session import FetchSession, Key, Wanted
from odradek.protocol.messages.fetch import FetchRequest

T, U = b"t" * 16, b"u" * 16
ALL: dict[Key, Wanted] = {(T, 0): (5, 10, 99), (T, 1): (5, 11, 99), (U, 0): (5, 12, 99)}
NOT_FOUND, BAD_EPOCH, WRONG_TOPIC = 70, 71, 106


def partitions_in(request: FetchRequest) -> dict[Key, tuple[int, int, int]]:
    return {
        (t.topic_id, p.partition): (p.current_leader_epoch, p.fetch_offset, p.partition_max_bytes)
        for t in request.topics
        for p in t.partitions
    }


def forgotten(request: FetchRequest) -> set[Key]:
    return {(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions}


def ask(session: FetchSession, wanted: dict[Key, Wanted], version: int = 18) -> FetchRequest:
    request = FetchRequest(**session.says(wanted, version))
    request.encode(version)
    return request


def open_session() -> FetchSession:
    session = FetchSession()
    first = ask(session, ALL)
    assert (first.session_id, first.session_epoch, partitions_in(first)) == (0, 0, ALL)
    session.answered(7)
    return session


def test_after_the_first_request_only_changed_partitions_are_sent() -> None:
    session = open_session()
    quiet = ask(session, ALL)
    assert (quiet.session_id, quiet.session_epoch, partitions_in(quiet)) == (7, 1, {})
    session.answered(7)
    changed: dict[Key, Wanted] = {(T, 0): (5, 20, 99), (U, 0): (5, 12, 99), (U, 3): (1, 0, 9)}
    request = ask(session, changed)
    assert request.session_epoch == 2
    assert partitions_in(request) == {(T, 0): (5, 20, 99), (U, 3): (1, 0, 9)}
    assert forgotten(request) == {(T, 1)}


def test_the_caller_may_modify_the_dict_of_partitions_after_a_request() -> None:
    session = FetchSession()
    wanted = dict(ALL)
    ask(session, wanted)
    session.answered(7)
    wanted[T, 0] = (5, 20, 99)
    assert partitions_in(ask(session, wanted)) == {(T, 0): (5, 20, 99)}


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    for _ in range(2):
        assert partitions_in(ask(session, ALL)) == ALL
        session.answered(0)
    assert session.epoch == 0


def test_a_lost_response_starts_a_new_session_and_closes_the_old_one() -> None:
    session = open_session()
    ask(session, ALL)
    session.reset()
    again = ask(session, ALL)
    assert (again.session_id, again.session_epoch, partitions_in(again)) == (7, 0, ALL)
    assert forgotten(again) == set()


@pytest.mark.parametrize(("code", "kept"), [(NOT_FOUND, 0), (BAD_EPOCH, 7), (WRONG_TOPIC, 7)])
def test_a_session_error_is_retried_once_without_backoff(code: int, kept: int) -> None:
    session = open_session()
    ask(session, ALL)
    assert session.refused(code)
    again = ask(session, ALL)
    assert (again.session_id, again.session_epoch, partitions_in(again)) == (kept, 0, ALL)
    assert not session.refused(code)
    assert not session.refused(2)


def test_session_epochs_wrap_around_to_1() -> None:
    session = open_session()
    session.epoch = 2**31 - 1
    ask(session, ALL)
    session.answered(7)
    assert session.epoch == 1


def test_fetch_version_12_names_topics_and_version_6_has_no_session() -> None:
    session = open_session()
    named: dict[Key, Wanted] = {("t", 0): (5, 10, 99)}
    request = ask(session, named, 12)
    assert request.session_epoch == 0
    assert [t.topic for t in request.topics] == ["t"]
    session.answered(8)
    ask(session, {}, 12)
    old = ask(session, named, 6)
    assert (old.session_id, old.session_epoch) == (0, -1)
    assert len(old.topics) == 1


def test_the_last_request_closes_the_session() -> None:
    session = FetchSession()
    session.answered(77)
    last = FetchRequest(**session.ends())
    assert (last.session_id, last.session_epoch, last.topics) == (77, -1, [])
    assert not session.id
