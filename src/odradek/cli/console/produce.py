"""`odradek produce`: lines of standard input to records, as Kafka's console producer does it.

In: lines, flags. Out: records; on stderr what was lost; with `--json` one object at the end. Exit
statuses: 0 every line was acknowledged (also after SIGTERM), 1 some weren't, 2 wrong use, 130
Ctrl-C. Must not: count lines; `producing` does. Differences from Kafka's tool: batches are retried
until their delivery timeout unless `--message-send-max-retries` says otherwise (Kafka's gives up
after 3 retries), the defaults are those of the producer, a line that isn't acknowledged is named,
and a value needn't be UTF-8.
"""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import typer

from odradek.api.producer import Producer
from odradek.cli import INTERRUPTED
from odradek.cli.console import flags
from odradek.cli.console.client_settings import client_config
from odradek.cli.console.decoding import registry_of
from odradek.cli.console.encoding import SETTINGS as ENCODING
from odradek.cli.console.encoding import line_encoder
from odradek.cli.console.lines import PROPERTIES, LineParser, ParsedLine
from odradek.cli.console.producing import LineProducer, run
from odradek.cli.console.properties import line_settings, refuse, refuse_what_is_not_there
from odradek.cli.console.waiting import checked, ending, say, terminable
from odradek.cli.frame.results import as_document
from odradek.clients.bootstrap_timeout import BLOCK_TIMEOUT, DELIVERY_TIMEOUT, seconds_to_reach
from odradek.common.config import PRODUCER
from odradek.common.errors import KafkaError
from odradek.serialization.registry.settings import NAMES as REGISTRY

OPTIONS = {
    "bootstrap_server": "bootstrap.servers",
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "max_block_ms": "max.block.ms",
    "max_memory_bytes": "buffer.memory",
    "compression_codec": "compression.type",
}
"""Producer options by the flags that set them."""
NOT_THERE = {
    "line_reader": "Java classes can't be loaded; use --reader-property",
    "socket_buffer_size": "the operating system sizes the socket buffers",
}


def config_of(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the producer's configuration; flags override properties, which override the file."""
    refuse_what_is_not_there(params, NOT_THERE)
    return client_config(params, tool="producer", flags=OPTIONS)


def parser_of(params: Mapping[str, Any], topic: str) -> Callable[[bytes], ParsedLine]:
    """Return the function that converts a line to a record's key, value and headers."""
    settings = line_settings(
        params,
        new="reader_property",
        file="reader_config",
        known=(*PROPERTIES, *REGISTRY, *ENCODING),
    )
    encode = line_encoder(params, settings, registry_of(settings), topic)
    parse = LineParser(settings).parse
    return lambda line: encode(parse(line))


def produce(
    context: typer.Context,
    topic: flags.ProduceTopic = None,
    bootstrap_server: flags.BootstrapServer = None,
    profile: flags.ProfileName = None,
    sync: flags.Sync = False,
    batch_size: flags.BatchSize = None,
    message_send_max_retries: flags.MaxRetries = None,
    retry_backoff_ms: flags.RetryBackoff = None,
    timeout: flags.Linger = None,
    request_required_acks: flags.Acks = None,
    request_timeout_ms: flags.RequestTimeout = None,
    metadata_expiry_ms: flags.MetadataExpiry = None,
    max_block_ms: flags.MaxBlock = None,
    max_memory_bytes: flags.MaxMemory = None,
    max_partition_memory_bytes: flags.MaxPartitionMemory = None,
    compression_codec: flags.Codec = None,
    encode_key: flags.EncodeKey = None,
    encode_value: flags.EncodeValue = None,
    key_schema: flags.KeySchemaToWrite = None,
    value_schema: flags.ValueSchemaToWrite = None,
    reader_property: flags.ReaderProperty = None,
    old_property: flags.OldProperty = None,
    reader_config: flags.ReaderConfig = None,
    command_property: flags.CommandProperty = None,
    producer_property: flags.ProducerProperty = None,
    command_config: flags.CommandConfig = None,
    producer_config: flags.ProducerConfig = None,
    json: flags.ProduceJson = False,
    line_reader: flags.NotThere = None,
    socket_buffer_size: flags.NotThere = None,
) -> None:
    """Send each line of standard input as a record. Exit status 0 if all were acknowledged.

    Example: odradek produce --bootstrap-server localhost:9092 --topic flights
    --reader-property parse.key=true --reader-property key.separator=: < flights.txt
    """
    with ending("odradek produce"), as_document(json=json), terminable() as end:
        if topic is None:
            refuse("no topic is given: use --topic TOPIC")
        given = config_of(context.params)
        parse = parser_of(context.params, topic)
        config = checked(PRODUCER, given)
        producer = Producer(given)
        try:
            lines = LineProducer(producer, topic, parse, sync=sync)
            result = run(
                lines,
                _read(prompt=sys.stdin is not None and sys.stdin.isatty(), quiet=json),
                max_block=config[BLOCK_TIMEOUT],
                delivery=config[DELIVERY_TIMEOUT],
                first_contact=seconds_to_reach(config, BLOCK_TIMEOUT),
            )
        finally:
            # If a signal interrupts the close, the result already counts the lines in flight as
            # lost.
            with suppress(KafkaError, KeyboardInterrupt):
                producer.close(0)
    for text in result.describe():
        say(text)
    if json:
        typer.echo(jsonlib.dumps(result.to_dict()))
    if result.interrupted and not end.terminated:
        raise typer.Exit(INTERRUPTED)
    if result.lost_lines:
        raise typer.Exit(1)


def _read(*, prompt: bool, quiet: bool) -> Iterator[bytes]:
    """Yield the lines of standard input; on a terminal, with a prompt."""
    where = sys.stderr if quiet else sys.stdout
    while sys.stdin is not None:  # stdin is None if the shell closed it
        if prompt:
            where.write(">")
            where.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line
