"""`odradek consume`: records to standard output, as Kafka's console consumer writes them.

In: Kafka's flags. Out: a line per record, or with `--json` an object; at the end on stderr how many
there were. Exit statuses: 0 (also after SIGTERM), 1 it failed, 2 wrong use, 130 Ctrl-C. With
`--group` it is a member of that group and commits what it has written; without, it commits nothing.

Not as in Kafka's tool: without a group, partitions are assigned (those that a topic has at the
start); a topic that isn't there, and a number for `--offset` that isn't in the log, are errors; the
epoch of a record is shown where Kafka's tool loses it; and on a terminal control characters of
records are escaped (R-IN-3) unless `--raw` says otherwise.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import typer

from odradek.api.consumer import Consumer
from odradek.cli import INTERRUPTED
from odradek.cli.console import flags
from odradek.cli.console.consuming import CutOffError, Records, assign, start_offset, subscribe
from odradek.cli.console.formatting import PROPERTIES, RecordFormatter
from odradek.cli.console.properties import (
    client_config,
    line_settings,
    refuse,
    refuse_what_is_not_there,
)
from odradek.cli.console.waiting import checked, ending, say, terminable
from odradek.common.config import CONSUMER

OPTIONS = {
    "bootstrap_server": "bootstrap.servers",
    "isolation_level": "isolation.level",
    "group": "group.id",
}
"""The consumer's option that each flag sets."""
NOT_THERE = {
    "include": "give one --topic",
    "formatter": "classes can't be loaded; --formatter-property says how records are written",
    "enable_systest_events": "it belongs to Kafka's own system tests",
}


def config_of(params: Mapping[str, Any]) -> dict[str, str]:
    """The consumer's configuration: the file, over it the properties, over them the flags."""
    refuse_what_is_not_there(params, NOT_THERE)
    if not params.get("topic"):
        refuse("--topic is missing")
    offset = start_offset(params.get("offset"))
    if offset is not None and params.get("partition") is None:
        refuse("--offset needs --partition")
    if offset is not None and params.get("from_beginning"):
        refuse("--from-beginning and --offset can't be given together")
    config = client_config(params, tool="consumer", flags=OPTIONS)
    if "group.id" in config and params.get("partition") is not None:
        refuse("--partition and --group can't be given together: the group divides the partitions")
    reset = config.get("auto.offset.reset")
    if params.get("from_beginning") and reset not in (None, "earliest"):
        refuse(f"--from-beginning doesn't go with auto.offset.reset={reset}")
    if reset is None:
        # A number that isn't in the log must not silently become its end.
        other = "earliest" if params.get("from_beginning") else "latest"
        config["auto.offset.reset"] = "none" if isinstance(offset, int) else other
    return config


def formatter_of(params: Mapping[str, Any], *, escaped: bool = False) -> RecordFormatter | None:
    """How records are written; None for JSON. `escaped`: for a terminal."""
    settings = line_settings(
        params, new="formatter_property", file="formatter_config", known=PROPERTIES
    )
    for parameter in ("key_deserializer", "value_deserializer"):
        if params.get(parameter):
            settings[parameter.replace("_", ".")] = params[parameter]
    if not params.get("json"):
        return RecordFormatter(settings, escaped=escaped)
    if settings:
        refuse(f"--json has a form of its own: {', '.join(settings)} can't be given with it")
    return None


def consume(
    context: typer.Context,
    bootstrap_server: flags.BootstrapServer,
    topic: flags.ConsumeTopic = None,
    partition: flags.Partition = None,
    offset: flags.Offset = None,
    from_beginning: flags.FromBeginning = False,
    max_messages: flags.MaxMessages = None,
    timeout_ms: flags.Timeout = None,
    isolation_level: flags.Isolation = None,
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
    include: flags.NotThere = None,
    formatter: flags.NotThere = None,
    enable_systest_events: flags.NotThereFlag = False,
) -> None:
    """Write the records of a topic to standard output, line by line."""
    with ending("odradek consume"):
        given = config_of(context.params)
        config = checked(CONSUMER, given)
        escaped = _on_terminal() and not raw
        shape = formatter_of(context.params, escaped=escaped)
        idle = timeout_ms / 1000 if timeout_ms is not None and timeout_ms >= 0 else None
        most = max_messages if max_messages is not None and max_messages >= 0 else None
        patience = config["default.api.timeout.ms"]
        # By an exception: so what wasn't written isn't committed.
        with suppress(CutOffError), Consumer(given) as consumer, terminable() as end:
            records = Records(
                consumer,
                shape,
                _Stdout(),
                time.monotonic,
                skip_on_error=skip_message_on_error,
                escaped=escaped,
            )
            try:
                patience = patience if idle is None else min(patience, idle)
                if config["group.id"] is not None:
                    subscribe(consumer, topic or "", patience=patience)
                else:
                    place = start_offset(offset)
                    assign(consumer, topic or "", partition, place, patience=patience)
                records.run(most=most, idle=idle)
            except KeyboardInterrupt:
                raise typer.Exit(0 if end.terminated else INTERRUPTED) from None
            finally:
                if not records.cut_off:
                    say(f"Processed a total of {records.count} messages")


def _on_terminal() -> bool:
    return sys.stdout.isatty()


class _Stdout:
    """Standard output, which may be a pipe whose reader has had enough (`| head`)."""

    def __init__(self) -> None:
        self._descriptor = sys.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, 0)  # only the end is of interest
        self._room = select.poll()
        self._room.register(self._descriptor, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """Write all of it now."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # whoever made it doesn't want to wait; we do
                self._room.poll()

    def gone(self) -> bool:
        """Whether the reader has closed its end."""
        return any(event & select.POLLERR for _, event in self._poll.poll(0))
