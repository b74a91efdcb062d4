"""The flags of the console tools: Kafka's names, one line of help each.

In: nothing. Out: annotated types for the commands' signatures. Must not: check options of clients;
`common.config` does.
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
    typer.Option(help=f"Bootstrap servers: host:port, comma-separated (or {BOOTSTRAP})."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        help=f"A profile of ~/.config/odradek/config.toml with client options (or {PROFILE})."
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Argument(
        show_default=False, help=f"Bootstrap servers: host:port, comma-separated (or {BOOTSTRAP})."
    ),
]
OrOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="Bootstrap servers, as in Kafka's own tools.",
    ),
]


def where_to_start(bootstrap: str | None, option: str | None) -> str | None:
    """Return the bootstrap servers from the argument or from Kafka's flag; None without both."""
    if bootstrap is not None and option is not None:
        refuse("set the address once: as an argument or as --bootstrap-server")
    return option if bootstrap is None else bootstrap


CommandConfig = Annotated[
    Path | None,
    typer.Option(help=f"A Java properties file with client options (or {COMMAND_CONFIG})."),
]
CommandProperty = Annotated[
    list[str] | None,
    _words("--command-property", "A client option, by Kafka's name; may be repeated."),
]
OldProperty = Annotated[
    list[str] | None,
    _words("--property", "The older name of --reader-property or --formatter-property."),
]
NotThere = Annotated[str | None, typer.Option(hidden=True)]
NotThereFlag = Annotated[bool, typer.Option(hidden=True)]

# odradek produce

ProduceTopic = Annotated[str | None, typer.Option(help="The topic to write to.")]
Sync = Annotated[bool, typer.Option("--sync", help="Wait for each line's acknowledgement.")]
BatchSize = Annotated[int | None, _number("batch.size, in bytes.", 1)]
MaxRetries = Annotated[
    int | None, _number("retries (default: limited by delivery.timeout.ms only).")
]
RetryBackoff = Annotated[int | None, _number("retry.backoff.ms: the delay before the first retry.")]
Linger = Annotated[int | None, _number("linger.ms: how long a batch waits for more lines.")]
Acks = Annotated[
    str | None,
    typer.Option(help="acks: all (or -1, the default), 1 or 0; with 1 and 0 records can be lost."),
]
RequestTimeout = Annotated[int | None, _number("request.timeout.ms.", 1)]
MetadataExpiry = Annotated[int | None, _number("metadata.max.age.ms.")]
MaxBlock = Annotated[int | None, _number("max.block.ms: how long a line waits for buffer memory.")]
MaxMemory = Annotated[int | None, _number("buffer.memory, in bytes.", 1)]
MaxPartitionMemory = Annotated[int | None, _number("The older name of --batch-size.", 1)]
Codec = Annotated[
    str | None, typer.Option(help="compression.type: none, gzip, snappy, lz4 or zstd.")
]
EncodeKey = Annotated[
    LineFormat | None,
    typer.Option(
        help="Encode JSON keys in this format, with a schema registry (default: as they are)."
    ),
]
EncodeValue = Annotated[
    LineFormat | None,
    typer.Option(
        help="Encode JSON values in this format, with a schema registry (default: as they are)."
    ),
]
KeySchemaToWrite = Annotated[
    Path | None,
    typer.Option(
        "--key-schema",
        help="A file with the Avro or JSON schema of keys (default: the registry's latest).",
    ),
]
ValueSchemaToWrite = Annotated[
    Path | None,
    typer.Option(
        "--value-schema",
        help="A file with the Avro or JSON schema of values (default: the registry's latest).",
    ),
]
ReaderProperty = Annotated[
    list[str] | None,
    _words(
        "--reader-property",
        f"A property of the line reader: {', '.join(lines.PROPERTIES)}, schema.registry.url, "
        f"{', '.join(SETTINGS)}, or another option of the schema registry's client.",
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
Partition = Annotated[int | None, _number("Read only this partition (default: all).")]
Offset = Annotated[
    str | None,
    typer.Option(
        help="Where to start: an offset, -N for N before the end, beginning (earliest), end "
        "(latest), a time such as 2026-02-28T12:00 (UTC) or @MILLISECONDS, or stored: the "
        "committed offsets of --group, without joining it (default: latest; with --until or "
        "--exit: beginning)."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        help="Stop before this offset or time, written as for --offset; end is the log's end when "
        "the command starts."
    ),
]
Exit = Annotated[bool, typer.Option("--exit", "-e", help="Same as --until end.")]
Include = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Instead of --topic: all topics whose full name matches."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help="Format of a record, as in kcat: %t topic, %p partition, %o offset, %k key, %s value, "
        "%K and %S their lengths, %T timestamp, %h headers, %%; \\n, \\t, \\r, \\0, \\xNN. No "
        "newline is added.",
    ),
]
DecodeKey = Annotated[
    Decoding | None, typer.Option(help="Decode keys as this type (default: none, raw bytes).")
]
DecodeValue = Annotated[
    Decoding | None, typer.Option(help="Decode values as this type (default: none, raw bytes).")
]
KeySchema = Annotated[Path | None, typer.Option(help="A JSON file with the Avro schema of keys.")]
ValueSchema = Annotated[
    Path | None, typer.Option(help="A JSON file with the Avro schema of values.")
]
AvroWireFormat = Annotated[
    WireFormat,
    typer.Option(
        help="confluent: each Avro value starts with five bytes, a zero and the schema's id."
    ),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the earliest record.")
]
Group = Annotated[
    str | None,
    typer.Option(help="Read as a member of this group from its committed offsets, and commit."),
]
MaxMessages = Annotated[
    int | None,
    typer.Option(
        "--max-messages",
        "--count",
        "-c",
        min=-1,
        metavar="N",
        help="Stop after N records (default: never).",
    ),
]
Timeout = Annotated[int | None, _number("Stop if no record arrives for N ms.", -1)]
Isolation = Annotated[
    str | None,
    typer.Option(
        help="read_committed hides records of open and aborted transactions (default: show them)."
    ),
]
FormatterProperty = Annotated[
    list[str] | None,
    _words(
        "--formatter-property",
        f"A property of the record formatter: {', '.join(formatting.PROPERTIES)}, "
        "schema.registry.url, or another option of the schema registry's client (for avro, "
        "json and protobuf).",
    ),
]
FormatterConfig = Annotated[Path | None, typer.Option(help="A file with formatter properties.")]
KeyDeserializer = Annotated[
    str | None, typer.Option(help="key.deserializer of the formatter (default: none, raw bytes).")
]
ValueDeserializer = Annotated[
    str | None, typer.Option(help="value.deserializer of the formatter (default: none, raw bytes).")
]
SkipOnError = Annotated[
    bool,
    typer.Option("--skip-message-on-error", help="Skip records that can't be decoded."),
]
ConsumerProperty = Annotated[
    list[str] | None, _words("--consumer-property", "The older name of --command-property.")
]
ConsumerConfig = Annotated[
    Path | None, typer.Option("--consumer.config", help="The older name of --command-config.")
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Write control characters unescaped, even to a terminal.")
]
ConsumeJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per record.")]
