"""Test the client configuration that flags of `produce` and `consume` set, and their errors."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.spec.commands import client_of, parameters
from typer.testing import CliRunner

from odradek.cli.brokers import broker_api_versions
from odradek.cli.console import consume, produce, waiting
from odradek.cli.console.consume import formatter_of
from odradek.cli.console.formatting import RecordFormatter
from odradek.cli.console.offset_positions import LogPlace, PlaceKind, end_place, log_place
from odradek.cli.console.properties import UsageError
from odradek.cli.console.waiting import (
    PROGRESS,
    Failing,
    patiently,
    telling_at_first,
    telling_of_waiting,
    terminable,
)
from odradek.common.errors import KafkaTimeoutError
from odradek.common.events import Event

START = "--bootstrap-server a:1 --topic t"
REGISTRY = "--formatter-property schema.registry.url=http://a:1"


def run(function: Any, words: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    done = CliRunner().invoke(app, words.split())
    return done.exit_code, done.output


def test_flags_of_produce_set_the_producers_options() -> None:
    words = (
        f"odradek produce {START} --batch-size 1 --message-send-max-retries 2 "
        "--retry-backoff-ms 3 --timeout 4 --request-required-acks -1 --request-timeout-ms 5 "
        "--metadata-expiry-ms 6 --max-block-ms 7 --max-memory-bytes 8 --compression-codec zstd "
        "--command-property client.id=me --command-property retries=9"
    )
    assert client_of(words) == {
        "client": "producer",
        "config": {
            "bootstrap.servers": "a:1",
            "batch.size": "1",
            "retries": "2",
            "retry.backoff.ms": "3",
            "linger.ms": "4",
            "acks": "-1",
            "request.timeout.ms": "5",
            "metadata.max.age.ms": "6",
            "max.block.ms": "7",
            "buffer.memory": "8",
            "compression.type": "zstd",
            "client.id": "me",
        },
    }


def test_environment_variables_replace_missing_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "b:2")
    monkeypatch.setenv("ODRADEK_COMMAND_CONFIG", str(tmp_path / "client.properties"))
    (tmp_path / "client.properties").write_text("client.id=me\n")
    for tool in ("consume", "produce"):
        config = client_of(f"odradek {tool} --topic t")["config"]
        assert (config["bootstrap.servers"], config["client.id"]) == ("b:2", "me")
        config = client_of(f"odradek {tool} {START}")["config"]
        assert config["bootstrap.servers"] == "a:1"


def test_missing_flags_set_no_options() -> None:
    found = client_of(f"odradek produce {START} --sync --json")["config"]
    assert found == {"bootstrap.servers": "a:1", "client.id": "console-producer"}
    found = client_of("odradek broker-api-versions --bootstrap-server a:1")["config"]
    assert found["bootstrap.servers"] == "a:1"


def test_max_partition_memory_bytes_overrides_batch_size() -> None:
    words = f"odradek produce {START} --batch-size 1 --max-partition-memory-bytes 2"
    assert client_of(words)["config"]["batch.size"] == "2"


@pytest.mark.parametrize(
    ("words", "reset"),
    [
        ("", "latest"),
        ("--from-beginning", "earliest"),
        ("--partition 0", "latest"),
        ("--partition 0 --from-beginning", "earliest"),
        ("--partition 0 --offset latest", "latest"),
        ("--offset 7", "none"),
        ("--offset -7", "earliest"),
        ("--exit", "earliest"),
        ("--partition 0 --offset 7 --consumer-property auto.offset.reset=earliest", "earliest"),
    ],
)
def test_flags_of_consume_set_auto_offset_reset(words: str, reset: str) -> None:
    found = client_of(f"odradek consume {START} {words} --isolation-level read_committed")
    assert found["config"] == {
        "bootstrap.servers": "a:1",
        "client.id": "console-consumer",
        "isolation.level": "read_committed",
        "auto.offset.reset": reset,
    }


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("12", PlaceKind.OFFSET, 12),
        ("Earliest", PlaceKind.BEGINNING, 0),
        ("beginning", PlaceKind.BEGINNING, 0),
        ("latest", PlaceKind.END, 0),
        ("end", PlaceKind.END, 0),
        ("stored", PlaceKind.STORED, 0),
        ("-10", PlaceKind.BEFORE_END, 10),
        ("@1500", PlaceKind.TIME, 1500),
        ("s@1500", PlaceKind.TIME, 1500),
        ("1970-01-02", PlaceKind.TIME, 86_400_000),
        ("1970-01-01T01:00:01.5", PlaceKind.TIME, 3_601_500),
        ("1970-01-01T01:00:01+01:00", PlaceKind.TIME, 1000),
    ],
)
def test_the_value_of_the_flag_offset_may_be_a_number_or_a_word_or_a_time(
    text: str, kind: PlaceKind, number: int
) -> None:
    assert log_place(text, "--offset") == LogPlace(kind, number)


@pytest.mark.parametrize(
    "text", ["x", "1.5", "", "--1", "-", "@", "@x", "s@-1", "1960-01-01", "٣", "9" * 19]
)
def test_the_flag_until_rejects_an_invalid_value(text: str) -> None:
    with pytest.raises(UsageError, match="--until must be an offset"):
        end_place(text, "--until")


def test_the_flag_until_rejects_a_time_in_the_future() -> None:
    with pytest.raises(UsageError, match="9999-01-01 is in the future"):
        end_place("9999-01-01", "--until")


@pytest.mark.parametrize(
    ("function", "words", "says"),
    [
        (produce.produce, "--bootstrap-server a:1", "no topic is given: use --topic TOPIC"),
        (produce.produce, f"{START} --line-reader X", "--line-reader is not supported"),
        (
            produce.produce,
            f"{START} --socket-buffer-size 1",
            "--socket-buffer-size is not supported",
        ),
        (produce.produce, f"{START} --compression-codec lzo", "must be one of none, gzip, snappy"),
        (produce.produce, f"{START} --request-required-acks 2", "acks must be all, 1 or 0"),
        (produce.produce, f"{START} --command-property nix=1", "unknown option 'nix'"),
        (produce.produce, f"{START} --reader-property nix=1", "unknown property 'nix'"),
        (produce.produce, f"{START} --command-config /nix", "/nix can't be read"),
        (produce.produce, "--bootstrap-server a --topic t", "'a' isn't host:port"),
        (consume.consume, f"{START} --group g --partition 0", "can't be given together: the group"),
        (consume.consume, f"{START} --include x", "use --topic or --include"),
        (
            consume.consume,
            "--bootstrap-server a:1 --include (",
            "is not a valid regular expression",
        ),
        (
            consume.consume,
            "--bootstrap-server a:1 --include x --partition 0",
            "--partition needs --topic",
        ),
        (consume.consume, f"{START} --group g --offset 1", "reads from those without joining"),
        (
            consume.consume,
            f"{START} --group g --exit",
            "--until and --exit can't be given with --group",
        ),
        (consume.consume, f"{START} --offset stored", "--offset stored needs --group"),
        (consume.consume, f"{START} --until end --exit", "--exit is --until end"),
        (consume.consume, f"{START} --format %x", "unknown token %x; use %t topic"),
        (consume.consume, f"{START} --format %s%", "unknown token %"),
        (consume.consume, f"{START} --format \\q", "unknown escape"),
        (consume.consume, f"{START} --format %s --json", "--format and --json can't be"),
        (consume.consume, f"{START} --format %s --property print.key=true", "has its own format"),
        (consume.consume, f"{START} --decode-value avro", "needs --value-schema FILE"),
        (consume.consume, f"{START} --decode-value avro", "or --formatter-property schema.reg"),
        (consume.consume, f"{START} --decode-key string {REGISTRY}", "avro, json or protobuf"),
        (consume.consume, f"{START} --decode-value protobuf", "needs a schema registry"),
        (
            consume.consume,
            f"{START} --decode-value avro --value-schema /nix {REGISTRY}",
            "together",
        ),
        (
            consume.consume,
            f"{START} --decode-value avro {REGISTRY}/x,y",
            "must be an http or https",
        ),
        (consume.consume, f"{START} --key-schema /nix", "needs --decode-key avro"),
        (
            consume.consume,
            f"{START} --decode-key int --key-deserializer Long",
            "--decode-key and key.deserializer can't be",
        ),
        (consume.consume, f"{START} --formatter X", "--formatter is not supported"),
        (consume.consume, f"{START} --enable-systest-events", "--enable-systest-events is not"),
        (
            consume.consume,
            f"{START} --group g --command-property group.protocol=x",
            "classic, consumer",
        ),
        (consume.consume, "--bootstrap-server a:1", "--topic or --include: one is missing"),
        (consume.consume, f"{START} --partition 0 --offset x", "--offset must be an offset"),
        (
            consume.consume,
            f"{START} --partition 0 --offset 1 --from-beginning",
            "--from-beginning and --offset can't be given together",
        ),
        (
            consume.consume,
            f"{START} --from-beginning --command-property auto.offset.reset=latest",
            "contradicts auto.offset.reset=latest",
        ),
        (consume.consume, f"{START} --isolation-level x", "isolation.level must be one of"),
        (consume.consume, f"{START} --json --property print.key=true", "--json has its own format"),
        (
            consume.consume,
            f"{START} --key-deserializer X",
            "key.deserializer: unknown deserializer X",
        ),
        (
            broker_api_versions.broker_api_versions,
            "--bootstrap-server a:1 --command-config /nix",
            "/nix can't be read",
        ),
    ],
)
def test_an_invalid_command_line_is_rejected_with_the_reason(
    function: Any, words: str, says: str
) -> None:
    status, output = run(function, words)
    assert status == 2, output
    assert says in output
    assert "--help" in output


@pytest.mark.parametrize(
    "function", [produce.produce, consume.consume, broker_api_versions.broker_api_versions]
)
def test_help_lists_the_supported_options(function: Any) -> None:
    status, output = run(function, "--help")
    assert status == 0
    assert "--bootstrap-server" in output
    assert "--json" in output
    assert "socket-buffer-size" not in output


def test_deserializers_can_be_set_by_their_own_flags() -> None:
    words = f"{START} --key-deserializer Long --value-deserializer Integer"
    found = formatter_of(parameters(consume.consume, words.split()))
    assert isinstance(found, RecordFormatter)
    assert found._of_key is not None
    assert found._of_value is not None


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        (produce.produce, produce.OPTIONS),
        (consume.consume, consume.OPTIONS),
        (produce.produce, produce.NOT_THERE),
        (consume.consume, consume.NOT_THERE),
    ],
)
def test_every_documented_flag_is_a_parameter_of_the_command(
    tool: Any, flags: dict[str, str]
) -> None:
    known = parameters(tool, START.split())
    assert set(flags) <= set(known)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("timed out waiting for x", "timed out waiting for x"),
        (
            "timed out waiting for x: nobody is there\n  h:1: refused\n  h:2: gone",
            "nobody is there h:1: refused",
        ),
        ("timed out waiting for news of x: gone", "gone"),
    ],
)
def test_a_call_without_a_response_is_repeated_until_its_timeout(text: str, why: str) -> None:
    asked: list[float] = []
    said: list[str] = []

    def never(seconds: float) -> None:
        asked.append(seconds)
        raise KafkaTimeoutError(text)

    with pytest.raises(KafkaTimeoutError):
        patiently(never, 2 * PROGRESS + 1, said.append, "x")
    assert asked == [PROGRESS, PROGRESS, 1]
    assert said == [
        f"still waiting for x (6 s left): {why}",
        f"still waiting for x (1 s left): {why}",
    ]


def test_the_message_that_a_command_waits_lists_current_connection_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    monkeypatch.setattr(waiting, "say", say)
    failing = Failing()
    refused = {"error": "ConnectionRefusedByPeerError: connection refused", "failures": 1}
    failing(Event(1.0, "dial_failed", {"address": "h:1", **refused}))
    failing(Event(1.0, "dns_failed", {"address": "i:2", "error": "the name has no address"}))
    failing(Event(1.0, "dial_failed", {"address": "j:3", **refused}))
    failing(Event(2.0, "proved", {"address": "j:3"}))
    with telling_of_waiting("still there", 0.05, failing):
        assert told.wait(10)
    wanted = "still there\n  h:1: ConnectionRefusedByPeerError: connection refused\n"
    assert said == [f"{wanted}  i:2: the name has no address"]


@pytest.mark.slow
def test_slow_calls_are_reported_until_the_first_call_succeeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hour = threading.Event()

    def call(seconds: float) -> float:
        hour.wait(seconds)
        if seconds == 0.2:
            raise KafkaTimeoutError("not yet")
        return seconds

    told = telling_at_first(call, "still there", after=0.05)
    with pytest.raises(KafkaTimeoutError):
        told(0.2)
    assert capsys.readouterr().err == "still there\n"
    assert told(0.3) == 0.3
    assert capsys.readouterr().err == "still there\n"
    assert told(0.3) == 0.3
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("ignored", [False, True])
def test_sigterm_exits_with_status_0_and_restores_the_handlers(ignored: bool) -> None:
    before = signal.getsignal(signal.SIGINT)
    term = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        with pytest.raises(typer.Exit) as left, terminable() as end:
            assert not end.terminated
            os.kill(os.getpid(), signal.SIGTERM)
        assert end.terminated
        assert left.value.exit_code == 0
        assert signal.getsignal(signal.SIGTERM) == term
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_raises_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), terminable() as end:
        raise KeyboardInterrupt
    assert not end.terminated


@pytest.mark.parametrize(
    ("command", "client"), [(consume.consume, "Consumer"), (produce.produce, "Producer")]
)
def test_sigterm_while_the_client_is_created_exits_with_status_0(
    monkeypatch: pytest.MonkeyPatch, command: Any, client: str
) -> None:
    came: list[int] = []

    def create(_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(inspect.getmodule(command), client, create)
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        status, _ = run(command, START)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (status, came) == (0, [])


def test_lines_that_were_not_sent_are_reported_even_if_sigterm_interrupts_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closing:
        def close(self, timeout: float) -> None:
            signal.raise_signal(signal.SIGTERM)

    module: Any = inspect.getmodule(produce.produce)
    lost = SimpleNamespace(
        interrupted=False, lost_lines=3, describe=lambda: ["3 lines were lost"], to_dict=dict
    )
    monkeypatch.setattr(module, "Producer", lambda _: Closing())
    monkeypatch.setattr(module, "LineProducer", lambda *_, **__: None)
    monkeypatch.setattr(module, "run", lambda *_, **__: lost)
    status, said = run(produce.produce, START)
    assert (status, "3 lines were lost" in said) == (1, True)


def test_a_properties_file_for_kafkas_tools_is_read(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=localhost:9092\ncompression.type=gzip\n")
    words = f"odradek produce {START} --producer.config {file}"
    assert client_of(words)["config"] == {
        "bootstrap.servers": "a:1",
        "compression.type": "gzip",
        "client.id": "console-producer",
    }


@pytest.mark.parametrize(
    ("terminal", "words", "escaped"),
    [(True, "", True), (True, "--raw", False), (False, "", False), (True, "--json", True)],
)
def test_control_characters_in_records_are_escaped_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, words: str, escaped: bool
) -> None:
    """R-IN-3: a pipe gets the bytes of records unchanged, as from Kafka's own tool."""
    seen: list[bool] = []

    def made(*_: Any, escaped: bool) -> None:
        seen.append(escaped)
        raise KafkaTimeoutError("enough")

    monkeypatch.setattr(consume, "formatter_of", made)
    monkeypatch.setattr(consume, "_on_terminal", lambda: terminal)
    run(consume.consume, f"{START} {words}")
    assert seen == [escaped]
