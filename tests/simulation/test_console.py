"""The console tools in virtual time: outages, limits, messages."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.cli.brokers.broker_api_versions import as_dict, as_text
from odradek.cli.console.consuming import (
    AT_ONCE,
    CutOffError,
    Records,
    assign,
    fitting,
    subscribe,
    there,
)
from odradek.cli.console.formatting import RecordFormatter
from odradek.cli.console.lines import LineParser
from odradek.cli.console.offset_positions import log_place
from odradek.cli.console.producing import (
    INTERRUPTED_FLUSH,
    LOST_KEPT,
    LineProducer,
    ProducedLines,
    run,
)
from odradek.common.errors import ConfigurationError, KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition


class Output:
    """The output of a command, closed by its reader after a number of lines."""

    written, closed_after = b"", -1

    def write(self, data: bytes) -> None:
        if self.gone():
            raise BrokenPipeError
        self.written += data

    def gone(self) -> bool:
        return 0 <= self.closed_after <= len(self.written.splitlines())


class Scene(Stage):
    """A cluster with a topic, and the console tools that use it."""

    def __init__(self, seed: int, *, partitions: int = 1) -> None:
        super().__init__(seed, partitions=partitions)
        self.said: list[str] = []
        self.output = Output()

    def produce(
        self, given: Iterator[bytes] | list[bytes], *, sync: bool = False, **config: Any
    ) -> ProducedLines:
        producer = self.producer(**config)
        lines = LineProducer(producer, "t", LineParser({}).parse, sync=sync, tell=self.said.append)
        settled = producer._calls.config
        limits = {"max_block": settled["max.block.ms"], "delivery": settled["delivery.timeout.ms"]}
        result = run(lines, given, **limits)
        try:
            producer.close(0)
        except KafkaError:
            assert result.lost_lines
        return result

    def records(self, consumer: Consumer, *, skip: bool = False, **settings: str) -> Records:
        shape = RecordFormatter({k.replace("_", "."): v for k, v in settings.items()})
        clock = lambda: self.world.now  # noqa: E731  # short
        tell = self.said.append
        return Records(consumer, shape, self.output, clock, skip_on_error=skip, tell=tell)

    def assign(
        self, consumer: Consumer, place: str | None = None, until: str | None = None
    ) -> dict[TopicPartition, int] | None:
        start, end = (None if t is None else log_place(t, "--offset") for t in (place, until))
        partitions = there(consumer, "t", None, patience=10, tell=self.said.append)
        return assign(consumer, partitions, start, end, patience=10, tell=self.said.append)


def numbers(count: int) -> list[bytes]:
    return [b"%d\n" % n for n in range(count)]


def test_each_line_is_sent_as_a_record() -> None:
    scene = Scene(1)
    result = scene.produce([b"one\n", b"\n", b"two\r\n", b"three"])
    assert scene.values() == [b"one", b"", b"two", b"three"]
    assert (result.lines, result.acknowledged, list(result.describe())) == (4, 4, [])
    assert json.loads(json.dumps(result.to_dict()))["partitions"] == {
        "0": {"records": 4, "first_offset": 0, "last_offset": 3}
    }


def test_a_long_wait_for_acknowledgements_is_reported() -> None:
    scene = Scene(11)
    scene.cluster.min_insync_replicas = 4
    scene.world.after(12.0, lambda: setattr(scene.cluster, "min_insync_replicas", 1))
    result = scene.produce(numbers(3))
    assert (result.acknowledged, result.lost_lines) == (3, 0)
    assert scene.said == [
        "still waiting for 3 lines to be acknowledged (116 s left)",
        "still waiting for 3 lines to be acknowledged (111 s left)",
    ]


def test_lost_records_are_reported_by_line_number() -> None:
    scene = Scene(3)

    def given() -> Iterator[bytes]:
        for n, line in enumerate(numbers(10)):
            if n == 6:
                scene.world.advance(1.0)
                every_broker(scene.cluster, "crash")
            yield line

    result = scene.produce(given(), request_timeout_ms=2000, delivery_timeout_ms=8000)
    assert (result.lines, result.acknowledged, result.lost_lines) == (10, 6, 4)
    told = list(result.describe())
    assert told[0] == "4 of 10 lines were not acknowledged:"
    assert told[1].startswith("  lines 7-10: NoBrokerAvailableError")
    assert "refused" in told[1]


def test_a_record_is_lost_after_the_given_number_of_retries() -> None:
    scene = Scene(4)
    scene.cluster.min_insync_replicas = 4

    def given() -> Iterator[bytes]:
        yield b"lost\n"
        scene.world.advance(5.0)
        scene.cluster.min_insync_replicas = 1
        yield b"kept\n"

    result = scene.produce(given(), retries=2)
    assert (result.acknowledged, result.lost_lines) == (1, 1)
    assert "NotEnoughReplicasError" in result.lost[0].error
    assert scene.values() == [b"kept"]


def test_a_line_that_is_too_large_does_not_fail_other_lines() -> None:
    scene = Scene(5)
    result = scene.produce([b"a\n", b"x" * 5000 + b"\n", b"b\n"], max_request_size=4096)
    assert scene.values() == [b"a", b"b"]
    assert [(o.first, o.last) for o in result.lost] == [(2, 2)]
    assert "RecordTooLargeError" in result.lost[0].error
    assert result.stopped is None


def test_produce_stops_reading_at_a_line_without_a_key_separator() -> None:
    scene = Scene(6)
    producer = scene.producer()
    parse = LineParser({"parse.key": "true"}).parse
    lines = LineProducer(producer, "t", parse, tell=scene.said.append)
    with producer:
        result = run(lines, [b"k\tv\n", b"odd\n", b"k\tv\n"], max_block=60, delivery=120)
    assert (result.lines, result.acknowledged, result.lost_lines) == (2, 1, 1)
    assert result.stopped == "Stopped reading at line 2, which couldn't be sent."
    assert scene.values() == [b"v"]


def test_a_missing_topic_ends_the_command_after_max_block_ms() -> None:
    scene = Scene(7)
    scene.cluster.delete_topic("t")
    began = scene.world.now
    result = scene.produce(numbers(3), max_block_ms=12000)
    assert 12.0 <= scene.world.now - began <= 13.0
    assert (result.lines, result.lost_lines) == (1, 1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in result.lost[0].error
    assert [text.partition(" (")[0] for text in scene.said] == [
        "still waiting for metadata of topic t"
    ] * 2


def test_with_sync_each_line_is_acknowledged_before_the_next_is_sent() -> None:
    scene = Scene(8)
    seen: list[int] = []

    def given() -> Iterator[bytes]:
        for line in numbers(5):
            seen.append(len(scene.values()))
            yield line

    result = scene.produce(given(), sync=True)
    assert seen == [0, 1, 2, 3, 4]
    assert result.acknowledged == 5


def test_ctrl_c_flushes_the_sent_records() -> None:
    scene = Scene(9)

    def given() -> Iterator[bytes]:
        yield from numbers(3)
        raise KeyboardInterrupt

    result = scene.produce(given(), linger_ms=60000, delivery_timeout_ms=120000)
    assert (result.acknowledged, result.lost_lines) == (3, 0)
    assert result.stopped == "interrupted after 3 lines"


def test_produce_ends_in_time_after_ctrl_c_if_every_broker_is_dead() -> None:
    scene = Scene(10)

    def given() -> Iterator[bytes]:
        yield b"kept\n"
        scene.world.advance(1.0)
        every_broker(scene.cluster, "crash")
        yield b"lost\n"
        scene.began = scene.world.now  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    result = scene.produce(given())
    took = scene.world.now - scene.began  # type: ignore[attr-defined]
    assert took <= INTERRUPTED_FLUSH + 1.5
    assert [(o.first, o.error) for o in result.lost] == [
        (2, "not acknowledged before the command ended")
    ]


def test_the_number_of_reported_line_ranges_is_limited() -> None:
    result = ProducedLines(lines=1000)
    for line in range(1, 1000, 2):
        result.lose(line, "gone")
    assert result.lost_lines == 500
    assert len(result.lost) == LOST_KEPT
    assert list(result.describe())[-1].startswith("  … and ")


def test_records_are_printed_up_to_max_messages() -> None:
    scene = Scene(20)
    scene.produce(numbers(30))
    with scene.consumer() as consumer:
        scene.assign(consumer)
        records = scene.records(consumer, print_offset="true")
        records.run(most=20, idle=None)
    assert records.count == 20
    assert scene.output.written == b"".join(b"Offset:%d\t%d\n" % (n, n) for n in range(20))


def test_consume_ends_if_no_record_arrives_within_the_timeout() -> None:
    scene = Scene(21)
    scene.produce(numbers(3))
    with scene.consumer() as consumer:
        scene.assign(consumer, "earliest")
        began = scene.world.now
        records = scene.records(consumer)
        records.run(most=None, idle=3.0)
        assert 3.0 <= scene.world.now - began <= 3.7
    assert records.count == 3
    assert not records.cut_off


def test_consume_starts_at_the_given_offset() -> None:
    scene = Scene(22)
    scene.produce(numbers(10))
    for place, first in (("7", 7), ("earliest", 0), ("latest", None), ("-4", 6), ("-40", 0)):
        scene.output.written = b""
        with scene.consumer(client_id=f"at-{place}") as consumer:
            scene.assign(consumer, place)
            scene.records(consumer).run(most=1, idle=1.0)
        assert scene.output.written == (b"" if first is None else b"%d\n" % first)


@pytest.mark.parametrize(
    ("place", "until", "found"),
    [
        (None, "end", range(20)),
        ("-5", "end", range(15, 20)),
        ("3", "7", range(3, 7)),
        ("@1000003", "@1000007", range(3, 7)),
        ("1970-01-01T00:16:40.018Z", "end", range(18, 20)),
        ("@2000000", "end", ()),
        ("beginning", "@2000000", range(20)),
        ("7", "3", ()),
    ],
)
def test_consume_ends_at_the_given_end(place: str | None, until: str, found: Any) -> None:
    scene = Scene(33)
    with scene.producer() as producer:
        for n in range(20):
            producer.send("t", b"%d" % n, timestamp_ms=1_000_000 + n)
    with scene.consumer() as consumer:
        ends = scene.assign(consumer, place, until)
        began = scene.world.now
        scene.records(consumer).run(most=None, idle=None, ends=ends)
        assert scene.world.now - began < 1.0
    assert scene.output.written.split() == [b"%d" % n for n in found]


def test_consume_starts_at_the_offsets_of_a_group_without_committing() -> None:
    scene = Scene(34)
    scene.produce(numbers(10))
    place = TopicPartition("t", 0)
    with scene.consumer(group_id="g", enable_auto_commit=False) as member:
        member.assign([place])
        member.commit({place: 6})
        ends = scene.assign(member, "stored", "end")
        scene.records(member).run(most=None, idle=None, ends=ends)
    assert scene.output.written.split() == [b"6", b"7", b"8", b"9"]
    with scene.consumer(group_id="g") as member:
        committed = member.committed([place])[place]
        assert committed is not None
        assert committed.offset == 6


def test_consume_reads_all_topics_that_match_a_pattern() -> None:
    scene = Scene(35, partitions=2)
    scene.cluster.create_topic("t2", 1)
    scene.cluster.create_topic("u", 1)
    with scene.consumer() as consumer:
        found = fitting(consumer, "t.?", patience=10, tell=scene.said.append)
        assert found == [("t", 0), ("t", 1), ("t2", 0)]
        with pytest.raises(ConfigurationError, match="none of 3 topics matches x"):
            fitting(consumer, "x", patience=10, tell=scene.said.append)


def test_consuming_a_missing_partition_raises_an_error() -> None:
    scene = Scene(23, partitions=3)
    with scene.consumer() as consumer:
        with pytest.raises(ConfigurationError, match="partitions 0 to 2, not 3"):
            there(consumer, "t", 3, patience=10)
        with pytest.raises(UnknownTopicOrPartitionError, match="nix.*odradek topics create nix"):
            there(consumer, "nix", None, patience=10)


def test_consume_times_out_with_a_reason_if_every_broker_is_dead() -> None:
    scene = Scene(24)
    every_broker(scene.cluster, "crash")
    scene.cluster.close_front_door()
    with scene.consumer() as consumer:
        began = scene.world.now
        with pytest.raises(KafkaTimeoutError, match="no broker can be reached"):
            there(consumer, "t", None, patience=12, tell=scene.said.append)
        assert 12.0 <= scene.world.now - began <= 12.2
    assert len(scene.said) == 2


def test_consume_ends_if_its_output_is_closed() -> None:
    scene = Scene(25)
    scene.produce(numbers(30))
    scene.output.closed_after = 0
    with scene.consumer() as consumer:
        scene.assign(consumer)
        records = scene.records(consumer)
        with pytest.raises(CutOffError):
            records.run(most=None, idle=None)
    assert records.cut_off
    assert (scene.output.written, records.count) == (b"", 0)


def test_consume_ends_if_its_output_is_closed_while_no_record_arrives() -> None:
    scene = Scene(26)
    scene.produce(numbers(3))
    scene.output.closed_after = 3
    with scene.consumer() as consumer:
        scene.assign(consumer)
        began = scene.world.now
        records = scene.records(consumer)
        records.run(most=None, idle=None)
        assert scene.world.now - began < 2.0
    assert records.cut_off
    assert records.count == 3


def test_records_that_cannot_be_formatted_raise_an_error_or_are_skipped() -> None:
    scene = Scene(27)
    scene.produce([b"12345678\n", b"odd\n", b"12345678\n"])
    with scene.consumer() as consumer:
        scene.assign(consumer)
        records = scene.records(consumer, value_deserializer="Long")
        with pytest.raises(
            KafkaError, match="the record at t-0 offset 1 can't be printed: Long needs 8 bytes"
        ):
            records.run(most=3, idle=2.0)
    assert len(scene.output.written.splitlines()) == 1
    scene.output.written = b""
    with scene.consumer(client_id="again") as consumer:
        scene.assign(consumer)
        scene.records(consumer, skip=True, value_deserializer="Long").run(most=3, idle=2.0)
    assert len(scene.output.written.splitlines()) == 2
    assert scene.said == ["skipped the record at t-0 offset 1: Long needs 8 bytes, not 3"]


def test_broker_api_versions_reports_a_paused_broker_at_the_timeout() -> None:
    scene = Scene(40)
    with scene.client(Admin) as admin:
        whole = admin.describe_api_versions(10)
        assert [b.broker.id for b in whole] == [1, 2, 3]
        assert all(b.error is None and b.apis for b in whole)
        scene.cluster.pause(2)
        began = scene.world.now
        found = admin.describe_api_versions(6)
        assert 6.0 <= scene.world.now - began <= 6.1
    assert [b.broker.id for b in found if b.error is None] == [1, 3]
    paused = found[1]
    assert "ApiVersions of broker 2" in str(paused.error)
    text = as_text(paused)
    assert "(id: 2 rack: null isFenced: false) -> ERROR: KafkaTimeoutError: " in text
    assert "\n" not in text
    assert as_dict(paused)["apis"] == []


def test_broker_api_versions_waits_for_a_paused_broker() -> None:
    scene = Scene(41)
    with scene.client(Admin) as admin:
        scene.cluster.pause(1)
        scene.world.after(4.0, lambda: scene.cluster.repair(1))
        found = admin.describe_api_versions(10)
    assert all(b.error is None for b in found)
    assert 4.0 <= scene.world.now <= 7.0


def test_consume_with_a_group_resumes_at_the_committed_offsets() -> None:
    scene = Scene(31, partitions=3)
    scene.produce([b"%d" % n for n in range(30)])
    with scene.consumer(group_id="g") as first:
        subscribe(first, "t", patience=10, tell=scene.said.append)
        scene.records(first).run(most=12, idle=10)
    assert scene.output.written.count(b"\n") == 12
    with scene.consumer(group_id="g") as second:
        subscribe(second, "t", patience=10, tell=scene.said.append)
        scene.records(second).run(most=None, idle=3)
    assert sorted(map(int, scene.output.written.split())) == list(range(30))
    with scene.consumer(group_id="g") as third, pytest.raises(UnknownTopicOrPartitionError):
        subscribe(third, "nix", patience=10, tell=scene.said.append)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "disk full")], ids=str)
def test_records_that_could_not_be_printed_are_not_committed(
    error: OSError, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(32)
    scene.produce(numbers(3 * AT_ONCE))
    write, written = scene.output.write, 0

    def fails_at_the_second(data: bytes) -> None:
        nonlocal written
        written += 1
        if written > 1:
            raise error
        write(data)

    monkeypatch.setattr(scene.output, "write", fails_at_the_second)
    place = TopicPartition("t", 0)
    with suppress(OSError, CutOffError), scene.consumer(group_id="g", group_protocol=protocol) as a:
        subscribe(a, "t", patience=10, tell=scene.said.append)
        scene.records(a).run(most=None, idle=None)
    there = scene.output.written.count(b"\n")
    assert there > 0
    monkeypatch.undo()
    with scene.consumer(group_id="g", group_protocol=protocol) as b:
        committed = b.committed([place])[place]
        assert committed is not None
        assert committed.offset == there
        subscribe(b, "t", patience=10, tell=scene.said.append)
        scene.records(b).run(most=None, idle=3)
    assert scene.output.written == b"".join(numbers(3 * AT_ONCE))
