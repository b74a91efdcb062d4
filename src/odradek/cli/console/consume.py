"""Run `odradek consume`: write records to standard output, as Kafka's console consumer does.

In: Kafka's flags, and kcat's notations for positions and formats. Out: a line per record, or with
`--json` an object; at the end, the number of records on stderr. Exit statuses: 0 (also after
SIGTERM), 1 failed, 2 wrong use, 130 Ctrl-C. With `--group`, the command is a member of that group
and commits the records that it has written; otherwise it commits nothing.

Differences from Kafka's tool: without a group, partitions are assigned (those that a topic has at
the start); a topic that doesn't exist, and a number for `--offset` that isn't in the log, are
errors; the epoch of a record is shown, which Kafka's tool loses; and on a terminal control
characters of records are escaped (R-IN-3) unless `--raw` is set.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer

from odradek.api.consumer import Consumer
from odradek.cli import INTERRUPTED
from odradek.cli.console import flags
from odradek.cli.console.client_settings import client_config
from odradek.cli.console.consuming import (
    CutOffError,
    LineFormatter,
    Records,
    assign,
    fitting,
    subscribe,
    there,
)
from odradek.cli.console.decoding import REGISTERED, WireFormat, decoder, registry_of
from odradek.cli.console.format_strings import FormatString
from odradek.cli.console.formatting import PROPERTIES, JsonFormatter, RecordFormatter
from odradek.cli.console.offset_positions import WORDS, LogPlace, PlaceKind, end_place, log_place
from odradek.cli.console.properties import (
    UsageError,
    line_settings,
    refuse,
    refuse_what_is_not_there,
)
from odradek.cli.console.waiting import checked, ending, say, terminable
from odradek.cli.frame.results import as_document
from odradek.clients.bootstrap_timeout import API_TIMEOUT, seconds_to_reach
from odradek.common.config import CONSUMER
from odradek.common.types import TopicPartition
from odradek.serialization.registry.settings import NAMES

OPTIONS = {
    "bootstrap_server": "bootstrap.servers",
    "isolation_level": "isolation.level",
    "group": "group.id",
}
"""Consumer options by the flags that set them."""
NOT_THERE = {
    "formatter": "Java classes can't be loaded; use --format or --formatter-property",
    "enable_systest_events": "it is for Kafka's own system tests",
}
RESETS = {
    PlaceKind.BEGINNING: "earliest",
    PlaceKind.BEFORE_END: "earliest",
    PlaceKind.TIME: "earliest",
    PlaceKind.END: "latest",
    # An offset outside of the log must be reported, not replaced by the log's end.
    PlaceKind.OFFSET: "none",
    PlaceKind.STORED: "none",
}


@dataclass(frozen=True, slots=True)
class Range:
    """Part of a log that is read; None for a bound that wasn't set."""

    start: LogPlace | None
    until: LogPlace | None


def range_of(params: Mapping[str, Any]) -> Range:
    """Return the range that `--offset`, `--from-beginning`, `--until` and `--exit` define."""
    offset, until = params.get("offset"), params.get("until")
    if offset is not None and params.get("from_beginning"):
        refuse("--from-beginning and --offset can't be given together")
    if until is not None and params.get("exit_"):
        refuse("--until and --exit can't be given together: --exit is --until end")
    start = None if offset is None else log_place(offset, "--offset")
    end = WORDS["end"] if params.get("exit_") else None
    return Range(start, end if until is None else end_place(until, "--until"))


def config_of(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the consumer's configuration; flags override properties, which override the file."""
    refuse_what_is_not_there(params, NOT_THERE)
    if bool(params.get("topic")) == bool(params.get("include")):
        both = params.get("topic")
        refuse("use --topic or --include" + (", not both" if both else ": one is missing"))
    pattern = params.get("include")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            refuse(f"--include: {pattern!r} is not a valid regular expression: {error}")
        if params.get("partition") is not None:
            refuse("--partition needs --topic")
    wanted = range_of(params)
    config = client_config(params, tool="consumer", flags=OPTIONS)
    _check_group(config, wanted, params.get("partition"))
    reset = config.get("auto.offset.reset")
    if params.get("from_beginning") and reset not in (None, "earliest"):
        refuse(f"--from-beginning contradicts auto.offset.reset={reset}")
    if reset is None:
        from_first = params.get("from_beginning") or wanted.until is not None
        kind = wanted.start.kind if wanted.start is not None else None
        other = "earliest" if from_first else "latest"
        config["auto.offset.reset"] = other if kind is None else RESETS[kind]
    return config


def _check_group(config: dict[str, Any], wanted: Range, partition: int | None) -> None:
    stored = wanted.start is not None and wanted.start.kind is PlaceKind.STORED
    if stored and "group.id" not in config:
        refuse("--offset stored needs --group, whose committed offsets are the start")
    if stored:
        config["enable.auto.commit"] = "false"
    elif "group.id" in config:
        for flag, given in (("partition", partition), ("offset", wanted.start)):
            if given is not None:
                refuse(
                    f"--{flag} and --group can't be given together: the group assigns "
                    "partitions and has its own offsets; --offset stored reads from those "
                    "without joining the group"
                )
        if wanted.until is not None:
            refuse(
                "--until and --exit can't be given with --group; use --timeout-ms or --max-messages"
            )


def formatter_of(params: Mapping[str, Any], *, escaped: bool = False) -> LineFormatter:
    """Return the formatter of records. `escaped`: escape control characters for a terminal."""
    settings = line_settings(
        params, new="formatter_property", file="formatter_config", known=(*PROPERTIES, *NAMES)
    )
    registry = registry_of(settings)
    for parameter in ("key_deserializer", "value_deserializer"):
        if params.get(parameter):
            settings[parameter.replace("_", ".")] = params[parameter]
    form = params.get("avro_wire_format") or WireFormat.PLAIN
    key, value = (
        decoder(
            params.get(f"decode_{part}"),
            params.get(f"{part}_schema"),
            form,
            part=part,
            registry=registry,
        )
        for part in ("key", "value")
    )
    decoded = {params.get("decode_key"), params.get("decode_value")}
    if registry is not None and not decoded & REGISTERED.keys():
        refuse(
            "schema.registry.url needs --decode-key or --decode-value with avro, json or protobuf"
        )
    text = params.get("format_")
    if text is None and not params.get("json"):
        return RecordFormatter(settings, key, value, escaped=escaped)
    if text is not None and params.get("json"):
        refuse("--format and --json can't be given together")
    null = settings.pop("null.literal", "").encode() if text is not None else b""
    if settings:
        what = "--json" if text is None else "--format"
        refuse(f"{what} has its own format: {', '.join(settings)} can't be given with it")
    if text is None:
        return JsonFormatter(key, value, escaped=escaped)
    return FormatString(text, key, value, null=null, escaped=escaped)


def consume(
    context: typer.Context,
    bootstrap_server: flags.BootstrapServer = None,
    profile: flags.ProfileName = None,
    topic: flags.ConsumeTopic = None,
    include: flags.Include = None,
    partition: flags.Partition = None,
    offset: flags.Offset = None,
    from_beginning: flags.FromBeginning = False,
    until: flags.Until = None,
    exit_: flags.Exit = False,
    max_messages: flags.MaxMessages = None,
    timeout_ms: flags.Timeout = None,
    isolation_level: flags.Isolation = None,
    format_: flags.Format = None,
    decode_key: flags.DecodeKey = None,
    decode_value: flags.DecodeValue = None,
    key_schema: flags.KeySchema = None,
    value_schema: flags.ValueSchema = None,
    avro_wire_format: flags.AvroWireFormat = WireFormat.PLAIN,
    formatter_property: flags.FormatterProperty = None,
    old_property: flags.OldProperty = None,
    formatter_config: flags.FormatterConfig = None,
    key_deserializer: flags.KeyDeserializer = None,
    value_deserializer: flags.ValueDeserializer = None,
    skip_message_on_error: flags.SkipOnError = False,
    command_property: flags.CommandProperty = None,
    consumer_property: flags.ConsumerProperty = None,
    command_config: flags.CommandConfig = None,
    consumer_config: flags.ConsumerConfig = None,
    json: flags.ConsumeJson = False,
    raw: flags.Raw = False,
    group: flags.Group = None,
    formatter: flags.NotThere = None,
    enable_systest_events: flags.NotThereFlag = False,
) -> None:
    """Write the records of a topic to standard output, line by line.

    Example: odradek consume --bootstrap-server localhost:9092 --topic flights --offset -10 --exit
    """
    with ending("odradek consume"), as_document(UsageError, json=json), terminable() as end:
        given, wanted = config_of(context.params), range_of(context.params)
        config = checked(CONSUMER, given)
        shape = formatter_of(context.params, escaped=_on_terminal() and not raw)
        idle = timeout_ms / 1000 if timeout_ms is not None and timeout_ms >= 0 else None
        most = max_messages if max_messages is not None and max_messages >= 0 else None
        patience = config[API_TIMEOUT]
        patience = patience if idle is None else min(patience, idle)
        first = seconds_to_reach(config, API_TIMEOUT)
        # The exception prevents the commit of records that weren't written.
        with suppress(CutOffError), Consumer(given) as consumer:
            records = Records(
                consumer, shape, _Stdout(), time.monotonic, skip_on_error=skip_message_on_error
            )
            try:
                ends = None
                if config["group.id"] is not None and wanted.start is None:
                    subscribe(consumer, topic, include, patience=patience, first_contact=first)
                else:
                    chosen = _chosen(consumer, include, topic, partition, patience, first)
                    ends = assign(consumer, chosen, wanted.start, wanted.until, patience=patience)
                records.run(most=most, idle=idle, ends=ends)
            except KeyboardInterrupt:
                raise typer.Exit(0 if end.terminated else INTERRUPTED) from None
            finally:
                if not records.cut_off:
                    say(f"Processed a total of {records.count} messages")


def _chosen(
    consumer: Consumer,
    pattern: str | None,
    topic: str | None,
    partition: int | None,
    patience: float,
    first_contact: float,
) -> list[TopicPartition]:
    """Return the partitions that the flags name."""
    if pattern is not None:
        return fitting(consumer, pattern, patience=patience, first_contact=first_contact)
    return there(consumer, topic or "", partition, patience=patience, first_contact=first_contact)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


class _Stdout:
    """Standard output, which may be a pipe that its reader closes early (`| head`)."""

    def __init__(self) -> None:
        self._descriptor = sys.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, 0)  # `poll` always reports POLLERR
        self._room = select.poll()
        self._room.register(self._descriptor, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """Write all bytes, unbuffered."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # the parent process made the pipe non-blocking
                self._room.poll()

    def gone(self) -> bool:
        """Return whether the reader has closed its end."""
        return any(event & select.POLLERR for _, event in self._poll.poll(0))
