"""The flags of the console tools: Kafka's names, one line of help each.

In: nothing. Out: annotated types for the commands' signatures. Must not: check what options of
clients may be; `common.config` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.console import formatting, lines
from odradek.cli.console.decoding import Decoding, WireFormat
from odradek.cli.console.encoding import SETTINGS, LineFormat
from odradek.cli.console.properties import refuse
from odradek.cli.frame.settings import BOOTSTRAP, COMMAND_CONFIG, PROFILE


def _number(text: str, least: int = 0) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(min=least, metavar="N", help=text)
    return option


def _words(spelling: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(spelling, metavar="KEY=VALUE", help=text)
    return option


BootstrapServer = Annotated[
    str | None,
    typer.Option(help=f"Where to start: host:port, with commas (or {BOOTSTRAP})."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        help=f"A profile of ~/.config/odradek/config.toml with the client's options (or {PROFILE})."
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Argument(
        show_default=False, help=f"Where to start: host:port, with commas (or {BOOTSTRAP})."
    ),
]
OrOption = Annotated[
    str | None, typer.Option("--bootstrap-server", help="The same, as Kafka's own tools have it.")
]


def where_to_start(bootstrap: str | None, option: str | None) -> str | None:
    """Where to start, from the two ways to say it: as an argument, or as Kafka's tools do; None
    where neither does.
    """
    if bootstrap is not None and option is not None:
        refuse("give the address once: as an argument or as --bootstrap-server")
    return option if bootstrap is None else bootstrap


CommandConfig = Annotated[
    Path | None,
    typer.Option(
        help=f"A file with options of the client, in Java's properties form (or {COMMAND_CONFIG})."
    ),
]
CommandProperty = Annotated[
    list[str] | None,
    _words("--command-property", "An option of the client, by Kafka's name; may be repeated."),
]
OldProperty = Annotated[
    list[str] | None, _words("--property", "The older name of the flag for the lines' properties.")
]
NotThere = Annotated[str | None, typer.Option(hidden=True)]
NotThereFlag = Annotated[bool, typer.Option(hidden=True)]

# odradek produce

ProduceTopic = Annotated[str | None, typer.Option(help="The topic to write to.")]
Sync = Annotated[bool, typer.Option("--sync", help="Wait for each line's acknowledgement.")]
BatchSize = Annotated[int | None, _number("batch.size, in bytes.", 1)]
MaxRetries = Annotated[
    int | None, _number("retries (default: as many as delivery.timeout.ms has room for).")
]
RetryBackoff = Annotated[int | None, _number("retry.backoff.ms: the first wait before a retry.")]
Linger = Annotated[int | None, _number("linger.ms: how long a batch waits for more lines.")]
Acks = Annotated[
    str | None,
    typer.Option(help="acks: all (or -1, the default), 1 or 0; with 1 and 0 records can be lost."),
]
RequestTimeout = Annotated[int | None, _number("request.timeout.ms.", 1)]
MetadataExpiry = Annotated[int | None, _number("metadata.max.age.ms.")]
MaxBlock = Annotated[int | None, _number("max.block.ms: how long a line waits for room.")]
MaxMemory = Annotated[int | None, _number("buffer.memory, in bytes.", 1)]
MaxPartitionMemory = Annotated[int | None, _number("The older name of --batch-size.", 1)]
Codec = Annotated[
    str | None, typer.Option(help="compression.type: none, gzip, snappy, lz4 or zstd.")
]
EncodeKey = Annotated[
    LineFormat | None,
    typer.Option(help="Write keys of JSON as this, by a schema registry (default: as they are)."),
]
EncodeValue = Annotated[
    LineFormat | None,
    typer.Option(help="Write values of JSON as this, by a schema registry (default: as they are)."),
]
KeySchemaToWrite = Annotated[
    Path | None,
    typer.Option(
        "--key-schema",
        help="A file with the schema of keys, of Avro or JSON (default: the registry's latest).",
    ),
]
ValueSchemaToWrite = Annotated[
    Path | None,
    typer.Option(
        "--value-schema",
        help="A file with the schema of values, of Avro or JSON (default: the registry's latest).",
    ),
]
ReaderProperty = Annotated[
    list[str] | None,
    _words(
        "--reader-property",
        f"How lines are read; one of {', '.join(lines.PROPERTIES)}, or schema.registry.url, "
        f"{', '.join(SETTINGS)}, and others of a registry's client.",
    ),
]
ReaderConfig = Annotated[Path | None, typer.Option(help="A file with reader properties.")]
ProducerProperty = Annotated[
    list[str] | None, _words("--producer-property", "The older name of --command-property.")
]
ProducerConfig = Annotated[
    Path | None, typer.Option("--producer.config", help="The older name of --command-config.")
]
ProduceJson = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]

# odradek consume

ConsumeTopic = Annotated[str | None, typer.Option(help="The topic to read.")]
Partition = Annotated[int | None, _number("Read this partition only (default: all).")]
Offset = Annotated[
    str | None,
    typer.Option(
        help="Where to start: a number, -N for N before the end, beginning (earliest), end "
        "(latest), a time as 2026-02-28T12:00 (UTC) or @MILLISECONDS, or stored: where --group is, "
        "without joining it (default: latest; with --until or --exit the beginning)."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        help="End before this: a place as --offset has them; end is what is there at the start."
    ),
]
Exit = Annotated[bool, typer.Option("--exit", "-e", help="The same as --until end.")]
Include = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Instead of --topic: all topics whose whole name fits."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help="How a record is written, as kcat has it: %t topic, %p partition, %o offset, %k key, "
        "%s value, %K and %S their lengths, %T timestamp, %h headers, %%; \\n, \\t, \\r, \\0, "
        "\\xNN. It ends no line by itself.",
    ),
]
DecodeKey = Annotated[Decoding | None, typer.Option(help="What keys are (default: none, bytes).")]
DecodeValue = Annotated[
    Decoding | None, typer.Option(help="What values are (default: none, bytes).")
]
KeySchema = Annotated[Path | None, typer.Option(help="The Avro schema of keys, as a JSON file.")]
ValueSchema = Annotated[
    Path | None, typer.Option(help="The Avro schema of values, as a JSON file.")
]
AvroWireFormat = Annotated[
    WireFormat,
    typer.Option(help="confluent: five bytes stand before each Avro value, a zero and an id."),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the first record that is there.")
]
Group = Annotated[
    str | None, typer.Option(help="Read as a member of this group, from where it is, and commit.")
]
MaxMessages = Annotated[
    int | None,
    typer.Option(
        "--max-messages",
        "--count",
        "-c",
        min=-1,
        metavar="N",
        help="End after so many records (default: go on for ever).",
    ),
]
Timeout = Annotated[int | None, _number("End when no record came for so many ms.", -1)]
Isolation = Annotated[
    str | None,
    typer.Option(help="read_committed hides open and aborted transactions (default: show them)."),
]
FormatterProperty = Annotated[
    list[str] | None,
    _words(
        "--formatter-property",
        f"How records are written; one of {', '.join(formatting.PROPERTIES)}, or "
        "schema.registry.url and others of a registry's client, for avro, json and protobuf.",
    ),
]
FormatterConfig = Annotated[Path | None, typer.Option(help="A file with formatter properties.")]
KeyDeserializer = Annotated[
    str | None, typer.Option(help="key.deserializer of the formatter (default: bytes as they are).")
]
ValueDeserializer = Annotated[
    str | None, typer.Option(help="value.deserializer of the formatter (default: as they are).")
]
SkipOnError = Annotated[
    bool,
    typer.Option(
        "--skip-message-on-error", help="Leave out records that can't be written as wished."
    ),
]
ConsumerProperty = Annotated[
    list[str] | None, _words("--consumer-property", "The older name of --command-property.")
]
ConsumerConfig = Annotated[
    Path | None, typer.Option("--consumer.config", help="The older name of --command-config.")
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Also to a terminal write control characters as they are.")
]
ConsumeJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per record.")]
