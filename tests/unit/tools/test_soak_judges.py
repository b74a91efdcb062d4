"""A soak fails if resources grow, if faults never happened, or if a copied topic differs."""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from tests.proxy_server import take
from tests.soak import page, slopes
from tests.soak.copier import differences
from tests.soak.coverage import BY_EVENT, EVENTS, LONG, Coverage, missed
from tests.soak.group_soak import STYLES, GroupPlan, GroupUnderTest
from tests.soak.lossy_proxy import END_TXN, PRODUCE, LossyProxy
from tests.soak.soak import PROXIED, Plan, required
from tests.soak.troubles import MORE_TROUBLES, STARTED_WITHIN, TROUBLES, Troubles

from odradek.common.events import KINDS
from odradek.common.types import TopicPartition
from odradek.metadata.topic_ids import TopicIds
from odradek.simulation.checkers.history import Write
from odradek.testing import ClusterStartError, LocalCluster

HOUR = 3600.0


def series(
    per_hour: float, noise: float = 0.0, seconds: float = 900.0
) -> list[tuple[float, float]]:
    """Return samples, one every 10 s, of a value that grows steadily from 100, with noise."""
    chance = random.Random(7)
    times = [10.0 * n for n in range(int(seconds / 10) + 1)]
    return [(at, 100 + per_hour * at / HOUR + chance.uniform(-noise, noise)) for at in times]


def judged(kind: str, points: list[tuple[float, float]]) -> list[str]:
    samples = slopes.Samples()
    for at, value in points:
        samples.add("member", at, {kind: value})
    return samples.failures()


@pytest.mark.parametrize("kind", slopes.BOUNDS)
def test_growth_above_the_limit_is_found_despite_noise(kind: str) -> None:
    bound = slopes.BOUNDS[kind]
    fast = max(bound.per_hour * 1.5, bound.growth * HOUR / 700.0)
    [found] = judged(kind, series(fast, noise=bound.growth / 4))
    assert found.startswith(f"{kind} of member grows by")
    assert bound.why in found
    assert judged(kind, series(bound.per_hour * 0.5, noise=bound.growth / 4)) == []


@pytest.mark.parametrize("kind", slopes.BOUNDS)
def test_growth_during_warm_up_or_in_one_step_is_not_reported(kind: str) -> None:
    bound = slopes.BOUNDS[kind]
    grown = [(at, min(at, slopes.WARM_UP) * bound.per_hour) for at, _ in series(0.0)]
    assert judged(kind, grown) == []
    step = [(at, bound.growth * 10 * (at > 600)) for at, _ in series(0.0)]
    assert judged(kind, step) == []


def test_a_short_series_is_never_reported_as_growth() -> None:
    short = series(1e6, seconds=slopes.WARM_UP + slopes.SHORTEST - 20)
    assert judged("memory_mb", short) == []
    assert slopes.slope([]) == 0.0


def test_the_growth_per_hour_of_a_long_series_is_computed() -> None:
    assert slopes.slope(series(50.0, seconds=36_000.0)) * HOUR == pytest.approx(50.0)


def test_the_resources_of_a_process_are_sampled() -> None:
    found = slopes.of_process(os.getpid())
    with Path("/dev/null").open():
        assert slopes.of_process(os.getpid())["descriptors"] >= found["descriptors"] + 1
    assert found["memory_mb"] > 1
    assert found["threads"] >= 1
    assert slopes.of_process(2**22 + 1) == {}


def test_unreachable_cycles_of_closed_clients_are_not_counted_as_kept() -> None:
    """The history of an hour makes Python collect the oldest generation ever more rarely."""
    name = f"{TopicIds.__module__}.{TopicIds.__qualname__}"

    class Holder:
        ids: TopicIds
        itself: Holder

    before = slopes.objects_of_clients()[name]
    gc.disable()
    try:
        for _ in range(100):
            holder = Holder()
            holder.ids, holder.itself = TopicIds(), holder
        del holder
        assert slopes.objects_by_type()[TopicIds] >= before + 100
        assert slopes.objects_of_clients()[name] == before
    finally:
        gc.enable()


def test_a_long_soak_fails_for_each_kind_of_event_that_never_happened() -> None:
    counts = {"kill": 2, "zombies fenced": 0, "throttle": 0}
    found = missed(counts, LONG)
    assert ["zombies fenced" in found[0], "throttle" in found[1], len(found)] == [True, True, 2]
    assert EVENTS["zombies fenced"] in found[0]
    assert missed(counts, LONG - 1) == []
    assert missed(dict.fromkeys(counts, 1), LONG) == []


def test_events_in_the_clients_event_files_are_counted(tmp_path: Path) -> None:
    assert set(BY_EVENT) <= set(KINDS)
    coverage = Coverage(["kill"])
    lines = [json.dumps({"kind": kind}) for kind in ("retry", "rebootstrap", "retry", "closed")]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"kind": "ret']))
    coverage.read_events(tmp_path)
    assert coverage.counts == {"kill": 0, "retries": 2, "rebootstraps": 1}
    with pytest.raises(ValueError, match="unknown kind"):
        coverage.add("something else")


def test_the_required_kinds_of_faults_depend_on_the_plan() -> None:
    plan = Plan(60.0, asyncio=1)
    companions: Any = type("", (), {"proxy": object(), "plan": GroupPlan()})()
    kinds = required(plan, companions)
    assert {*TROUBLES, *MORE_TROUBLES, *EVENTS} <= {*kinds}
    members = [style for styles in STYLES.values() for style in styles]
    assert {f"records handed to {style}" for style in members} <= {*kinds}
    companions.proxy = None
    assert not {*PROXIED} & {*required(plan, companions)}
    assert required(plan, None) == list(dict.fromkeys(plan.troubles))


def test_a_copied_topic_is_compared_with_its_source() -> None:
    source = {0: [(0, "a"), (2, "b")], 1: [(0, "c")]}
    assert differences(source, {0: [(0, "a"), (1, "b")], 1: [(5, "c")]}) == []
    lost = differences(source, {0: [(0, "a")], 1: [(0, "c")]})
    assert lost == ["odradek copy: partition 0 has 1 records of 2; at record 1: ['b'] became []"]
    twice = differences(source, {0: source[0], 1: [(0, "c"), (1, "c")]})
    assert twice == ["odradek copy: partition 1 has 2 records of 1; at record 1: [] became ['c']"]
    swapped = differences(source, {0: [(0, "b"), (1, "a")], 1: source[1]})
    assert swapped == [
        "odradek copy: partition 0 has 2 records of 2; at record 0: ['a'] became ['b']"
    ]


def group_that_saw(
    handed: list[tuple[float, int, int]], seen: list[tuple[float, int, int]], deleted: float = 10.0
) -> GroupUnderTest:
    """Return a group with one partition; records and commits are (time, incarnation, offset)."""
    group = GroupUnderTest.__new__(GroupUnderTest)
    lines = [{"at": at, "rows": [[0, offset, f"eager/{n}/0"]]} for at, n, offset in handed]
    group.kind, group.failures, group.left_over = "eager", [], 0
    group.members = [SimpleNamespace(lines=lines)]  # type: ignore[list-item]
    group._sightings = [(at, n, 0, offset) for at, n, offset in seen]
    group._deleted = {1: deleted, 2: deleted}
    return group


READ = [(1.0, 0, 0), (2.0, 0, 1), (12.0, 1, 0)]


@pytest.mark.parametrize(
    ("seen", "faults", "failures", "left_over"),
    [
        ([(1.5, 0, 1), (2.5, 0, 2), (12.5, 1, 1)], [], 0, 0),
        ([(2.5, 0, 2), (3.5, 0, 1)], [], 1, 0),
        ([(1.5, 0, 2)], [], 1, 0),
        ([(2.5, 0, 2), (11.0, 1, 2), (12.5, 1, 1)], [(8.0, 9.0)], 0, 1),
        ([(2.5, 0, 2), (11.0, 1, 2), (12.5, 1, 1)], [(80.0, 90.0)], 2, 0),
        ([(12.5, 1, 1), (13.0, 1, 2)], [(8.0, 9.0)], 1, 0),
        ([(2.5, 0, 2), (11.0, 2, 2)], [(8.0, 9.0)], 0, 1),
    ],
    ids=[
        "right",
        "moved back",
        "beyond",
        "kept by Kafka",
        "no fault",
        "of the old topic",
        "kept for two topics",
    ],
)
def test_committed_offsets_of_a_group_that_moved_or_are_too_high_are_reported(
    seen: list[tuple[float, int, int]],
    faults: list[tuple[float, float]],
    failures: int,
    left_over: int,
) -> None:
    group = group_that_saw(READ, seen)
    group._check_sightings(faults)
    assert (len(group.failures), group.left_over) == (failures, left_over), group.failures


class Silent(LossyProxy):
    """A proxy that records the API keys of the responses that it dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[int] = []

    def told(self, api: int) -> None:
        self.noted.append(api)


def frame(api: int, correlation: int) -> bytes:
    body = api.to_bytes(2, "big") + b"\0\0" + correlation.to_bytes(4, "big")
    return len(body).to_bytes(4, "big") + body


def test_the_proxy_drops_only_the_response_that_it_is_told_to_drop() -> None:
    with Silent() as proxy, socket.create_server(("127.0.0.1", 0)) as broker:
        port = broker.getsockname()[1]

        def connect() -> tuple[socket.socket, socket.socket]:
            client = socket.create_connection(("127.0.0.1", proxy.port), 10)
            client.sendall(b"\x05\x01\x00\x05\x01\x00\x01" + bytes([127, 0, 0, 1]))
            client.sendall(port.to_bytes(2, "big"))
            accepted, _ = broker.accept()
            take(client, 2)
            take(client, 12)
            return client, accepted

        def exchange(client: socket.socket, there: socket.socket, api: int, number: int) -> bytes:
            client.sendall(frame(api, number))
            assert take(there, 12)[8:] == number.to_bytes(4, "big")
            there.sendall((4).to_bytes(4, "big") + number.to_bytes(4, "big"))
            return client.recv(8)

        client, there = connect()
        with client, there:
            proxy.lose(END_TXN)
            assert len(exchange(client, there, PRODUCE, 1)) == 8
            assert exchange(client, there, END_TXN, 2) == b""
        client, there = connect()
        with client, there:
            assert len(exchange(client, there, END_TXN, 3)) == 8
        assert proxy.noted == [END_TXN]


def test_the_reports_page_contains_faults_failures_and_pictures() -> None:
    course: dict[str, Any] = {
        "faults": [("kill", 10.0, 14.0), ("lose answers", 20.0, 30.0)],
        "series": {
            "acknowledged": [(0.0, 0.0), (10.0, 600.0), (20.0, 900.0)],
            "lag, classic": [(0.0, 0.0), (10.0, 20.0)],
            "memory_mb, eager-auto": [(0.0, 40.0), (10.0, 41.0)],
            "log_lines, soak": [(0.0, 0.0), (10.0, 3.0)],
        },
    }
    report = {
        "seed": 7, "seconds": 30.0, "failures": ["lost write: <a>"],
        "slopes": {"memory_mb": {"eager-auto": 1.5}},
    }  # fmt: skip
    document = {"ok": False, "coverage": {"kill": 1, "move": 0}, "missed": ["no move"],
                "rounds": [report]}  # fmt: skip
    text = page.page("Soak", document, [course])
    for words in (
        "FAILED",
        "lost write: &lt;a&gt;",
        "no move",
        "<svg",
        "eager-auto",
        "lose answers",
    ):
        assert words in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert page.GOOD in page.page("Soak", {**document, "ok": True}, [course])
    assert page.rates(course["series"]["acknowledged"]) == [(10.0, 60.0), (20.0, 30.0)]


def test_every_kind_of_fault_has_a_colour() -> None:
    assert {*TROUBLES, *MORE_TROUBLES} == set(page.COLOURS)


class SlowCluster:
    """A fake cluster whose brokers don't start within the cluster's own timeout."""

    def __init__(self) -> None:
        self._now = self
        self.calls: list[object] = []

    def move(self) -> None:
        raise ClusterStartError("broker 0 is not ready after 90 s")

    def wait_ready(self, timeout: float) -> None:
        self.calls.append(timeout)

    def _lead(self) -> None:
        self.calls.append("lead")


def test_brokers_that_start_slowly_do_not_end_the_thread_that_causes_faults() -> None:
    cluster = SlowCluster()
    faults = Troubles(cast("LocalCluster", cluster), random.Random(1), [], pause=1.0)
    faults.cause("move", lambda _: None)
    assert cluster.calls == [STARTED_WITHIN, "lead"]
    assert [kind for kind, *_ in faults.times] == ["move"]


def test_a_request_to_create_a_topic_is_repeated_if_it_gets_no_response() -> None:
    """`result(30)` of librdkafka's future raises TimeoutError while all brokers are down."""
    group = GroupUnderTest.__new__(GroupUnderTest)
    done = confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    answers = [TimeoutError(), confluent_kafka.KafkaException(confluent_kafka.KafkaError(done))]

    def act() -> None:
        raise answers.pop(0)

    group._again(act, done)
    assert not answers


def test_a_failure_about_unread_records_contains_owners_and_committed_offsets() -> None:
    """They show later why no member read the partition."""
    group = GroupUnderTest.__new__(GroupUnderTest)
    group.group, group.incarnation, group._seen = "g", 2, {2: {0: 7}}
    place = TopicPartition("topic-eager#3", 4)
    group.sent = [(2, Write(place, "eager/2/9", 5)), (2, Write(place, "eager/2/8", 4))]
    assignment = SimpleNamespace(topic_partitions=[SimpleNamespace(partition=n) for n in (1, 0)])
    member = SimpleNamespace(client_id="eager-auto", assignment=assignment)
    described = SimpleNamespace(state=SimpleNamespace(name="STABLE"), members=[member])
    admin = SimpleNamespace(
        describe_consumer_groups=lambda *_, **__: {"g": SimpleNamespace(result=lambda _: described)}
    )
    group._admin = admin  # type: ignore[assignment]
    assert group.described(["eager/2/9"]) == (
        "offsets left by partition {4: [5]}, committed {0: 7}, group STABLE, "
        "members own {'eager-auto': [0, 1]}"
    )


def test_counting_objects_does_not_break_other_threads_that_construct_tuples() -> None:
    """A list of all objects also refers to unfinished tuples, whose construction would fail."""
    errors: list[Exception] = []
    over = threading.Event()

    def construct() -> None:
        while not over.is_set():
            try:
                tuple(n for n in range(40))
            except SystemError as error:
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=construct)
    thread.start()
    try:
        counts = [slopes.objects_by_type()[threading.Thread] for _ in range(30)]
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not errors
    assert min(counts) >= 1
