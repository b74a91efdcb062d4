"""Test finding a group's coordinator and sending requests to it, with failures of all kinds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spec.world import ClusterPicture, World, up

from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import GroupAuthorizationError, RebalanceInProgressError, error_for
from odradek.common.types import Address
from odradek.network.connection import COORDINATOR
from odradek.network.flow import Completion
from odradek.network.sasl.session import SaslSession
from odradek.protocol.message import Message
from odradek.protocol.messages.find_coordinator import Coordinator as Found
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

B1, B2, B3 = "b1:9092", "b2:9092", "b3:9092"
BROKERS = {1: B1, 2: B2, 3: B3}


class Groups(World):
    """Brokers that know the coordinator, and a coordinator that answers heartbeats."""

    def __init__(self, *, find_version: int = 6, **config: Any) -> None:
        super().__init__({"bootstrap.servers": B1, **config})
        self.brokers = dict(BROKERS)
        self.pictures["*"] = ClusterPicture(brokers=self.brokers)
        up(self, *BROKERS.values())
        self.find_version = find_version
        self.spoken = {10: (0, find_version), 12: (0, 4)}
        self.named = 2
        """Id of the broker that FindCoordinator responses name."""
        self.finds: list[int] = []
        """Errors in the next FindCoordinator responses."""
        self.codes: list[int] = []
        """Errors in the next Heartbeat responses."""
        self.coordinator = Coordinator(self.engine.brokers, CoordinatorKind.GROUP, "g")

    def answer(self, address: str, body: Any) -> Message | None:
        if isinstance(body, FindCoordinatorRequest):
            code = self.finds.pop(0) if self.finds else 0
            node = -1 if code else self.named
            if self.find_version < 4:
                assert body.key == "g"
                return FindCoordinatorResponse(error_code=code, node_id=node)
            assert body.coordinator_keys == ["g"]
            return FindCoordinatorResponse(coordinators=[Found("g", node, "x", 1, code)])
        if isinstance(body, HeartbeatRequest):
            wrong = 0 if address == self.brokers.get(self.named) else 16
            return HeartbeatResponse(error_code=self.codes.pop(0) if self.codes else wrong)
        return None

    def ask(self, within: float = 30.0, **how: Any) -> Completion[HeartbeatResponse]:
        def check(answer: HeartbeatResponse) -> KafkaError | None:
            return error_for(answer.error_code) if answer.error_code else None

        body = HeartbeatRequest("g", 1, "m")
        return self.engine.start(
            self.coordinator.ask(
                "Heartbeat", lambda _: body, HeartbeatResponse, check, self.now + within, **how
            )
        )

    def beat(self, within: float = 30.0, **how: Any) -> Completion[HeartbeatResponse]:
        done = self.ask(within, **how)
        self.run(self.now + within + 0.1, lambda: done.done)
        return done

    def asked_of(self, api: str) -> list[str]:
        return [a.address for a in self.asks(api)]


def with_known_coordinator() -> Groups:
    """Return brokers whose coordinator is known and has answered a heartbeat."""
    w = Groups()
    w.beat().result()
    return w


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_the_coordinator_is_looked_up_once_and_has_its_own_connection(version: int) -> None:
    w = Groups(find_version=version)
    assert w.coordinator.version(HeartbeatRequest) is None
    first, second = w.ask(), w.ask()
    w.run(1.0)
    first.result()
    second.result()
    assert w.asked_of("FindCoordinator") == [B1]
    assert w.asked_of("Heartbeat") == [B2, B2]
    assert w.coordinator.broker == 2
    assert w.coordinator.version(HeartbeatRequest) == 4
    assert [d.address for d in w.dials] == [B1, B2]
    assert w.connection(B2) is None, "purpose DATA isn't for coordinators"


def test_not_coordinator_causes_a_new_lookup() -> None:
    w = with_known_coordinator()
    w.named = 3
    begin = w.now
    w.beat().result()
    assert w.asked_of("Heartbeat") == [B2, B2, B3]
    assert len(w.asked_of("FindCoordinator")) == 2
    assert w.now - begin < 0.3


@pytest.mark.parametrize("code", [14, 15])
def test_a_loading_coordinator_is_retried_with_backoff(code: int) -> None:
    w = Groups()
    w.codes = [code, code, code]
    w.beat().result()
    assert len(w.asked_of("Heartbeat")) == 4
    assert len(w.asked_of("FindCoordinator")) == (1 if code == 14 else 4)
    gaps = [e.fields["backoff"] for e in w.kinds("retry")]
    assert gaps == [pytest.approx(0.1 * 2**n, rel=0.21) for n in range(3)]


def test_joins_and_heartbeats_have_a_constant_backoff() -> None:
    w = Groups()
    w.codes = [14] * 5
    w.beat(steady=True).result()
    assert [e.fields["backoff"] for e in w.kinds("retry")] == [0.1] * 5


def test_permanent_errors_are_raised_at_once() -> None:
    w = Groups()
    w.finds = [30]
    with pytest.raises(GroupAuthorizationError):
        w.beat().result()
    w.codes = [27]
    with pytest.raises(RebalanceInProgressError):
        w.beat().result()
    assert w.now < 0.5


def test_a_dead_coordinator_is_replaced_by_the_new_one() -> None:
    w = with_known_coordinator()
    w.mode(B2, mode="refused")
    done = w.ask()
    w.run(w.now + 3.0)
    assert not done.done
    dials = [d for d in w.dials if d.address == B2]
    assert 3 <= len(dials) <= 8, "its address backs off"
    w.named = 3
    begin = w.now
    w.run(w.now + 5.0, lambda: done.done)
    done.result()
    assert w.now - begin < 2.2
    assert w.asked_of("Heartbeat")[-1] == B3


def test_lookups_back_off_while_the_named_coordinator_is_unreachable() -> None:
    """R-RT-1: lookups back off for any number of requests, and even for heartbeats."""
    w = with_known_coordinator()
    w.mode(B2, mode="black_hole", cut=False)
    waiting = [w.ask(60.0, steady=True) for _ in range(5)]
    w.run(w.now + 20.0)
    times = [a.at for a in w.asks("FindCoordinator")[1:]]
    assert 4 <= len(times) <= 8
    assert times[-1] - times[-2] > 4.0
    up(w, B2)
    w.run(w.now + 15.0)
    assert all(d.done and d.error is None for d in waiting)


def test_the_coordinator_is_looked_up_again_soon_after_it_stops_responding() -> None:
    w = with_known_coordinator()
    w.mode(B2, mode="black_hole", cut=False)
    done, begin = w.ask(), w.now
    w.run(w.now + 1.0)
    w.named = 3
    w.run(w.now + 5.0, lambda: done.done)
    done.result()
    assert w.now - begin < 2.5
    # The silent connection stays open: other requests on it may still be answered.
    ended = [e.fields["connection"] for e in w.kinds("disconnected")]
    assert w.dials[1].connection not in ended


def test_a_request_to_a_silent_coordinator_ends_at_a_short_request_timeout() -> None:
    """R-TI-1: a request isn't in flight for longer than `request.timeout.ms`."""
    w = Groups(**{"request.timeout.ms": 700})
    w.beat().result()
    w.mode(B2, mode="black_hole", cut=False)
    w.ask()
    begin = w.now
    w.run(begin + 3.0, lambda: bool(w.kinds("disconnected")))
    ended = w.kinds("disconnected")[0]
    assert str(ended.fields["error"]).startswith("ResponseTimeoutError")
    assert ended.at - begin == pytest.approx(0.7, abs=0.01)


def test_a_request_that_the_coordinator_delays_is_retried_if_the_coordinator_has_moved() -> None:
    w = with_known_coordinator()
    w.mode(B2, mode="black_hole", cut=False)
    done, begin = w.ask(200.0, timeout=105.0, patience=100.0), w.now
    w.run(w.now + 1.0)
    w.named = 3
    w.run(w.now + 50.0, lambda: done.done)
    done.result()
    assert w.now - begin < 5.5
    assert w.asked_of("Heartbeat") == [B2, B2, B3]


def test_a_delayed_request_is_not_retried_while_the_coordinator_is_unchanged() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 40.0
    w.beat(100.0, timeout=65.0, patience=60.0).result()
    assert w.asked_of("Heartbeat") == [B2, B2]


def test_other_requests_do_not_wait_for_a_request_that_the_coordinator_delays() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 40.0
    held = w.ask(100.0, timeout=65.0, patience=60.0)
    w.run(w.now + 1.0)
    w.delays[B2] = 0.0
    w.beat(1.0).result()
    assert not held.done
    assert [e.fields["purpose"] for e in w.kinds("dial")] == ["data", "coordinator", "beside"]


def test_other_requests_do_not_wait_for_a_delayed_request_that_is_queued_behind_another() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 0.5
    ahead = w.ask()
    w.run(w.now + 0.1)
    w.delays[B2] = 40.0
    held = w.ask(100.0, timeout=65.0, patience=60.0)
    w.run(w.now + 0.1)
    assert not ahead.done
    w.delays[B2] = 0.0
    w.beat(0.3).result()
    assert not held.done
    assert w.kinds("dial")[-1].fields["purpose"] == "beside"


def test_other_requests_do_not_wait_for_a_delayed_request_during_reauthentication() -> None:
    w = with_known_coordinator()
    connection = w.engine.network.connection(Address("b2", 9092), COORDINATOR)
    assert connection is not None
    connection.session = session = SaslSession(0.0, w.now, w.engine.rng)
    session.gated = session.renewing = True
    held = w.ask(100.0, timeout=65.0, patience=60.0)
    w.run(w.now + 0.1)
    assert len(session.held) == 1
    w.beat(0.3).result()
    assert not held.done


def test_an_ordered_request_does_not_overtake_one_that_timed_out() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 1.0
    first = w.beat(0.3, ordered=True)
    assert isinstance(first.error, KafkaTimeoutError)
    w.delays[B2] = 40.0
    held = w.ask(100.0, timeout=65.0, patience=60.0)
    w.run(w.now + 0.1)
    w.delays[B2] = 0.0
    second, late = w.ask(ordered=True), w.ask(0.1, ordered=True)
    w.beat(0.2).result()  # on the second connection, which the ordered request would use
    w.run(w.now + 0.2)
    assert not second.done
    assert isinstance(late.error, KafkaTimeoutError)
    w.run(w.now + 1.0, lambda: second.done)
    second.result()
    assert not held.done


def test_the_request_version_can_be_limited() -> None:
    w = Groups()
    w.beat(newest=2).result()
    w.beat(newest=9).result()
    assert [a.version for a in w.asks("Heartbeat")] == [2, 4]


def test_waiting_requests_are_sent_again_when_another_request_finds_a_new_coordinator() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 60.0
    waiting = w.ask(timeout=65.0, patience=60.0)
    w.run(w.now + 0.5)
    w.coordinator.lost("a test says so", w.now)
    w.named = 3
    w.beat().result()
    w.run(w.now + 0.3)
    waiting.result()
    assert w.asked_of("Heartbeat") == [B2, B2, B3, B3]


def test_a_request_waits_until_metadata_contains_the_coordinators_broker() -> None:
    w = Groups()
    del w.brokers[2]
    done = w.ask()
    w.run(w.now + 1.0)
    assert not done.done
    assert w.asked_of("Heartbeat") == []
    assert len(w.asks("Metadata")) > 2
    w.brokers[2] = B2
    w.run(w.now + 3.0, lambda: done.done)
    done.result()


def test_a_request_is_sent_to_the_coordinators_new_address() -> None:
    w = with_known_coordinator()
    w.mode(B2, mode="refused")
    done = w.ask()
    w.run(w.now + 1.0)
    w.brokers[2] = "b2-new:9092"
    up(w, "b2-new:9092")
    w.run(w.now + 5.0, lambda: done.done)
    done.result()
    assert w.asked_of("Heartbeat") == [B2, "b2-new:9092"]


def test_the_timeout_error_lists_the_attempts_to_connect_to_the_coordinator() -> None:
    w = with_known_coordinator()
    w.mode(B2, mode="refused")
    begin = w.now
    done = w.beat(2.0)
    with pytest.raises(KafkaTimeoutError, match="timed out waiting for Heartbeat") as raised:
        done.result()
    assert w.now - begin <= 2.1
    assert any(a.address and str(a.address) == B2 for a in raised.value.attempts)


def test_a_call_that_times_out_does_not_close_the_connection() -> None:
    w = with_known_coordinator()
    w.delays[B2] = 1.0
    with pytest.raises(KafkaTimeoutError):
        w.beat(0.2).result()
    w.run(w.now + 1.0)
    w.delays[B2] = 0.0
    w.beat().result()
    assert len(w.dials) == 2


def test_if_the_call_that_started_a_lookup_times_out_a_waiting_call_repeats_the_lookup() -> None:
    w = Groups()
    w.run(0.1)
    w.delays[B1] = 0.5
    first, second = w.ask(0.4), w.ask(30.0)
    w.run(w.now + 5.0, lambda: second.done)
    assert isinstance(first.error, KafkaTimeoutError)
    second.result()
    assert w.asked_of("FindCoordinator") == [B1, B1]
