"""Authentication of clients in virtual time: mechanisms, session lifetimes, hostile brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.sasl_scene import PARTITIONS, PASSWORD, Scene
from tests.volume import pairs, some

from odradek.api.admin import Admin
from odradek.common.errors import (
    KafkaTimeoutError,
    MechanismUnsupportedError,
    SaslNotExpectedError,
    ServerNotTrustedError,
    TokenError,
)
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.network.connection import COORDINATOR
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation.brokers.sasl_listener import Hostile
from odradek.simulation.runs.explore import run_schedule
from odradek.simulation.runs.random_schedules import random_schedule
from odradek.simulation.world.link import Mode

MODES: tuple[Mode, ...] = ("bytes", "messages")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Tokens:
    """A token function that returns tokens with this lifetime or invalid ones, or fails."""

    def __init__(self, scene: Scene, lifetime: float = 3600.0) -> None:
        self.scene, self.lifetime = scene, lifetime
        self.given = 0
        self.error: Exception | None = None

    def __call__(self) -> tuple[str, float]:
        if self.error is not None:
            raise self.error
        self.given += 1
        end = self.scene.world.wall_clock() + self.lifetime
        self.scene.sasl.tokens[f"token-{self.given}"] = end
        return f"token-{self.given}", end


def tokens(scene: Scene) -> dict[str, Any]:
    """Return the settings of clients that authenticate with tokens."""
    wanted = scene.mechanism == "OAUTHBEARER"
    return {"sasl.oauthbearer.token.provider": Tokens(scene)} if wanted else {}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_connection_of_every_client_authenticates(mechanism: str) -> None:
    scene = Scene(mechanism=mechanism)
    scene.write(range(9), **tokens(scene))
    with scene.consumer(group_id="g", **tokens(scene)) as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 9) == list(range(9))
        purposes = {p for _, p in consumer._engine.network.connections}
        assert COORDINATOR in purposes
    with scene.client(Admin, **tokens(scene)) as admin:
        assert len(admin.describe_cluster().brokers) == 3
    accepted = [d for d in scene.world.dials if d.outcome == "accepted"]
    assert scene.sasl.authenticated == len(accepted)
    assert scene.sasl.refused == scene.sasl.killed == 0


def test_the_error_of_an_unsupported_mechanism_lists_the_brokers_mechanisms() -> None:
    scene = Scene(mechanism="SCRAM-SHA-512", mechanisms=("PLAIN", "OAUTHBEARER"))
    unsupported = pytest.raises(MechanismUnsupportedError, match="OAUTHBEARER, PLAIN")
    with scene.client(Admin) as admin, unsupported as caught:
        admin.list_topics(timeout=10)
    assert caught.value.mechanisms == ("OAUTHBEARER", "PLAIN")
    assert caught.value.address is not None
    assert scene.world.now < 1.0


def test_the_error_of_a_client_with_sasl_says_that_the_port_does_not_use_sasl() -> None:
    scene = Scene()
    scene.cluster.sasl = None
    with scene.client(Admin) as admin, pytest.raises(SaslNotExpectedError):
        admin.list_topics(timeout=10)
    assert scene.world.now < 1.0


@pytest.mark.parametrize(
    ("hostile", "kind"),
    [
        (Hostile.WRONG_SIGNATURE, ServerNotTrustedError),
        (Hostile.NO_PROOF, ServerNotTrustedError),
        (Hostile.FEW_ITERATIONS, ServerNotTrustedError),
        (Hostile.MANY_ITERATIONS, ServerNotTrustedError),
        (Hostile.FOREIGN_NONCE, ServerNotTrustedError),
        (Hostile.GARBAGE, ServerNotTrustedError),
        (Hostile.HUGE, ServerNotTrustedError),
        (Hostile.ENDLESS, ServerNotTrustedError),
        (Hostile.SILENT, KafkaTimeoutError),
        (Hostile.CLOSES, KafkaTimeoutError),
    ],
)
def test_hostile_sasl_responses_lead_to_an_error_in_time(
    hostile: Hostile, kind: type[Exception]
) -> None:
    scene = Scene(hostile=hostile)
    with scene.client(Admin) as admin, pytest.raises(kind) as caught:
        admin.list_topics(timeout=15)
    text = str(caught.value)
    assert PASSWORD not in text
    if kind is ServerNotTrustedError:
        assert scene.world.now < 1.0
    else:
        assert scene.world.now < 15.2
        words = {
            Hostile.SILENT: "no answer to the authentication",
            Hostile.CLOSES: "during SASL authentication",
        }
        assert words[hostile] in text
    assert scene.sasl.authenticated == 0 or hostile is Hostile.WRONG_SIGNATURE


def test_the_number_of_challenges_is_limited() -> None:
    class Patient:
        name = "PLAIN"

        def conversation(self, address: Any, rng: Any) -> Any:
            while True:
                yield b"and?"

    scene = Scene(mechanism="PLAIN", hostile=Hostile.ENDLESS)
    with scene.client(Admin) as admin:
        admin._engine.network.mechanism = Patient()
        with pytest.raises(ServerNotTrustedError, match="16 SASL tokens"):
            admin.list_topics(timeout=10)


# Session lifetimes (KIP-368)


@pytest.mark.parametrize(
    ("seed", "mechanism"), pairs(some(range(8), 2), ["SCRAM-SHA-256", "OAUTHBEARER"])
)
def test_no_request_is_lost_while_sessions_end(seed: int, mechanism: str) -> None:
    scene = Scene(seed, mechanism, session_lifetime=1.5 + seed % 3)
    events: list[str] = []

    def note(event: Event) -> None:
        if event.kind != "disconnected" or event.fields["failure"]:
            events.append(event.kind)

    with (
        scene.producer(linger_ms=seed % 3 * 4, **tokens(scene)) as producer,
        scene.consumer(**tokens(scene)) as consumer,
    ):
        producer.listen(note)
        consumer.listen(note)
        consumer.assign([TopicPartition("t", p) for p in range(PARTITIONS)])
        read: list[int] = []
        count = 400
        for n in range(count):
            producer.send("t", b"%d" % n, partition=n % PARTITIONS)
            if n % 4 == 0:
                read += [int(r.value or b"") for r in consumer.poll(0.1)]
            scene.world.advance(0.02)
        producer.flush(timeout=30)
        while len(read) < count:
            read += [int(r.value or b"") for r in consumer.poll(1.0)]
    assert sorted(scene.numbers()) == sorted(read) == list(range(count))
    assert events.count("reauthenticated") == scene.sasl.reauthenticated > 6
    assert scene.sasl.killed == scene.sasl.refused == 0
    assert not {"retry", "disconnected", "dial_failed"} & set(events)


def test_a_busy_broker_reads_no_request_after_the_end_of_a_session() -> None:
    """A broker reads a request after it has answered the earlier requests.

    Five requests take a second, which is more than the last 5 to 15 % of a session.
    """
    scene = Scene(session_lifetime=4.0)
    for broker in scene.cluster.brokers.values():
        broker.delays[ProduceRequest.API_KEY] = 0.2
    with scene.producer(linger_ms=0, batch_size=1) as producer:
        for n in range(600):
            producer.send("t", b"%d" % n, partition=n % PARTITIONS)
            scene.world.advance(0.03)
        producer.flush(timeout=60)
    assert sorted(scene.numbers()) == list(range(600))
    assert scene.sasl.killed == 0
    assert scene.sasl.reauthenticated > 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_join_held_longer_than_a_sasl_session_closes_no_connection(protocol: str) -> None:
    scene = Scene(session_lifetime=2.0)
    scene.cluster.group_settings.initial_rebalance_delay = 7.0
    scene.write(range(60))
    events: list[str] = []

    def note(event: Event) -> None:
        bad = event.kind in ("retry", "dial_failed") or event.fields.get("failure")
        if bad and "is being created" not in str(event):
            events.append(str(event))

    more = {"group_id": "g", "group_protocol": protocol}
    with scene.consumer(fetch_max_wait_ms=2500, **more) as consumer:
        consumer.listen(note)
        consumer.subscribe(["t"])
        read: list[int] = []
        while len(read) < 60 or scene.world.now < 40.0:
            read += [int(r.value or b"") for r in consumer.poll(1.0)]
            consumer.commit()
    assert sorted(read) == list(range(60))
    assert scene.sasl.killed == scene.sasl.refused == 0
    assert scene.sasl.reauthenticated > 10
    assert events == []


def test_an_idle_connection_reauthenticates_and_still_becomes_idle() -> None:
    scene = Scene(session_lifetime=2.0)
    config: dict[str, Any] = {"connections_max_idle_ms": 10_000, "metadata_max_age_ms": 600_000}
    with scene.client(Admin, **config) as admin:
        admin.list_topics()
        scene.world.advance(9.0)
        again = scene.sasl.reauthenticated
        assert again >= 4
        admin.list_topics()
        scene.world.advance(30.0)
        assert not admin._engine.network.connections
        assert scene.sasl.reauthenticated <= again * 3


def test_a_client_reauthenticates_before_its_next_request_after_a_long_pause() -> None:
    scene = Scene(session_lifetime=2.0)
    with scene.client(Admin, background=False) as admin:
        for pause in (0.5, 1.9, 10.0, 100.0):
            admin.describe_cluster()
            scene.world.advance(pause)
        admin.describe_cluster()
        assert scene.sasl.killed == 0
        assert [d.outcome for d in scene.world.dials].count("accepted") <= 4
        assert scene.sasl.reauthenticated >= 3


@pytest.mark.parametrize("seed", some([5, 12], 1))
def test_sasl_events_are_the_same_in_both_simulation_modes(seed: int) -> None:
    schedule = replace(random_schedule(seed, short=False), session=2.5, heal_at=8.0)
    link = replace(schedule.link, loss=0.0)
    runs = [run_schedule(replace(schedule, link=link), mode=mode, trace=True) for mode in MODES]
    assert runs[0].trace == runs[1].trace
    assert any("reauthenticated" in line for line in runs[0].trace)


def test_a_refused_reauthentication_closes_the_connection_without_losing_records() -> None:
    scene = Scene(session_lifetime=2.0)
    with scene.producer() as producer:
        producer.send("t", b"0", partition=0).result(timeout=5)
        scene.sasl.users.clear()
        scene.world.after(6.0, lambda: scene.sasl.users.update(alice=PASSWORD))
        for n in range(1, 200):
            producer.send("t", b"%d" % n, partition=0)
            scene.world.advance(0.05)
        producer.flush(timeout=30)
    assert scene.numbers() == list(range(200))
    assert scene.sasl.refused > 0
    assert scene.sasl.killed == 0


@pytest.mark.parametrize("outage", [8.0, 30.0])
def test_sessions_continue_while_a_token_server_fails(outage: float) -> None:
    scene = Scene(mechanism="OAUTHBEARER", session_lifetime=60.0)
    given = Tokens(scene, lifetime=60.0)
    events: list[str] = []
    with scene.client(Admin, sasl_oauthbearer_token_provider=given) as admin:
        admin.listen(lambda e: events.append(e.kind))
        admin.list_topics()
        scene.world.advance(50.0)
        given.error = OSError("the token server is down")
        scene.world.advance(outage)
        given.error = None
        scene.world.advance(3.0)
        admin.list_topics()
        if outage < 10.0:
            assert "dial_failed" not in events
            assert "retry" not in events
            assert scene.sasl.reauthenticated > 0
        assert scene.sasl.killed == 0


@pytest.mark.parametrize("slow", [5.0, 13.0])
@pytest.mark.parametrize("seed", some(range(8), 3))
def test_a_slow_token_server_does_not_end_connections(slow: float, seed: int) -> None:
    """A token is requested after 80 to 85 % of a session, which leaves at least 15 % (R-CS-5)."""
    scene = Scene(seed, mechanism="OAUTHBEARER", session_lifetime=100.0)
    given = Tokens(scene, lifetime=100.0)
    events: list[str] = []
    setup = {"socket_connection_setup_timeout_ms": 30_000}
    with scene.producer(sasl_oauthbearer_token_provider=given, **setup) as producer:
        producer.listen(lambda e: events.append(e.kind + "!" * bool(e.fields.get("failure"))))
        producer.send("t", b"first").result(timeout=10)
        scene.world.hosts["producer"].worker_delay = slow
        for _ in range(120):
            scene.world.advance(2.5)
            producer.send("t", b"one").result(timeout=10)
    assert scene.sasl.killed == 0
    assert 3 <= given.given <= 5
    assert not {"retry", "dial_failed!", "disconnected!"} & set(events)


def test_calls_of_a_function_that_returns_the_same_token_are_limited() -> None:
    scene = Scene(mechanism="OAUTHBEARER", session_lifetime=60.0)
    calls: list[float] = []
    end = scene.world.wall_clock() + 60.0
    scene.sasl.tokens["cached"] = end

    def cached() -> tuple[str, float]:
        calls.append(scene.world.now)
        return "cached", end

    with scene.client(Admin, sasl_oauthbearer_token_provider=cached) as admin:
        admin.list_topics()
        scene.world.advance(59.0)
    assert len(calls) < 12


def test_an_error_of_a_token_function_is_raised_immediately() -> None:
    scene = Scene(mechanism="OAUTHBEARER")
    given = Tokens(scene)
    given.error = RuntimeError("no luck")
    admin = scene.client(Admin, sasl_oauthbearer_token_provider=given)
    with admin, pytest.raises(TokenError, match="RuntimeError") as caught:
        admin.list_topics(timeout=10)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert scene.world.now < 1.0


def test_a_slow_token_function_does_not_count_as_a_silent_broker() -> None:
    scene = Scene(mechanism="OAUTHBEARER")
    with scene.client(Admin, **tokens(scene)) as admin:
        scene.world.hosts["admin"].worker_delay = 4.0
        admin.list_topics(timeout=30)
        assert "silent" not in admin._engine.events.counts


def test_a_token_function_that_hangs_raises_a_token_error_in_time() -> None:
    scene = Scene(mechanism="OAUTHBEARER")
    with scene.client(Admin, **tokens(scene)) as admin:
        scene.world.hosts["admin"].worker_delay = 1e6
        with pytest.raises(TokenError, match="before the timeout"):
            admin.list_topics(timeout=60)
    assert scene.world.now < 14.0
