"""Check a SPEC before anything starts; every problem has its line.

In: a `Document`. Out: a `Pipeline` of plain values: sources (streams), lookups (read once), views
(SQL over what is above them) and sinks, each of which becomes one streaming query. Must not: start
Spark or access a cluster; `graph` and `planning` do the checks that need them.

    name: flights
    storage: state                 # checkpoints, events, Spark's log; beside the SPEC
    trigger: 2 seconds             # or availableNow; also in a sink
    spark: {spark.master: local[2]}
    clusters:
      main: {bootstrap.servers: "${KAFKA}", properties: client.properties}
    registries:
      main: {url: "${REGISTRY}"}
    sources:
      flights:
        value: {format: avro, registry: main}
        deadLetterTopic: flights-bad
        options: {subscribe: flights, startingOffsets: earliest}
    lookups:
      carriers: {format: csv, schema: "code STRING, name STRING", options: {path: carriers.csv}}
    views:
      landed: SELECT … FROM flights LEFT JOIN carriers …
    sinks:
      copy: {from: landed, delivery: exactly_once, options: {topic: copy}}
      files: {from: landed, format: parquet, partitionBy: [day], options: {path: out}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.cli.pipeline.checkpoint import SCHEME, local_path
from odradek.cli.pipeline.document import Document, Node, Problems, close_to
from odradek.cli.pipeline.lock import resolved
from odradek.common.errors import KafkaError
from odradek.common.options.option_aliases import sealed
from odradek.serialization.registry.settings import SYNONYMS, URL

OURS = "odradek"
MODES = ("append", "complete", "update")
AVAILABLE_NOW = "availableNow"
DEFAULT_TRIGGER = "1 seconds"

TOP = (
    "name", "storage", "trigger", "spark", "clusters", "registries", "sources", "lookups", "views",
    "sinks",
)  # fmt: skip
OF_LOOKUP = ("cluster", "format", "schema", "key", "value", "options")
OF_SOURCE = (*OF_LOOKUP, "deadLetterTopic")
OF_SINK = (
    "from", "cluster", "format", "key", "value", "mode", "trigger", "partitionBy", "delivery",
    "options",
)  # fmt: skip
OF_COLUMN = ("format", "registry", "subject", "version", "message", "schema")
"""Keys in `key` and `value`, which define how keys and values are read or written."""
URLS, PREFIX = (URL, *SYNONYMS), "schemaRegistry."
PATHS = ("path", "checkpointlocation")
"""Options with paths, in lower case; relative paths are relative to the SPEC."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRIGGER = re.compile(
    r"(\d+)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)", re.IGNORECASE
)
_UNITS = {"m": "minutes", "s": "seconds", "h": "hours", "ms": "milliseconds"}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of a cluster's clients, and their line numbers."""

    name: str
    line: int
    settings: Mapping[str, Any] = field(repr=False)
    """Settings in the SPEC, secrets wrapped."""
    properties: Path | None
    """Path of a settings file, which `settings` override."""
    lines: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Registry:
    """Schema registry: options of sources and sinks, and their line numbers."""

    options: Mapping[str, Any] = field(repr=False)
    lines: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Common parts of sources, lookups and sinks."""

    name: str
    line: int
    format: str
    cluster: ClusterSettings | None
    options: Mapping[str, Any] = field(repr=False)
    lines: Mapping[str, int]
    """Line numbers of options, by name in lower case."""

    def option(self, name: str) -> Any:
        """Return the value of an option; names are case-insensitive, as in Spark."""
        return next((v for k, v in self.options.items() if k.lower() == name.lower()), None)

    def line_of(self, message: str) -> int:
        """Return the line of the option whose name occurs in an error message (the longest one)."""
        return _line_named(message, self.lines, self.line)


@dataclass(frozen=True, slots=True)
class Source(Place):
    """Stream, or a lookup table that each batch reads again."""

    schema: str | None
    schema_line: int


@dataclass(frozen=True, slots=True)
class View:
    """SQL statement of a view."""

    name: str
    line: int
    sql: str
    sql_line: int


@dataclass(frozen=True, slots=True)
class Sink(Place):
    """Output of rows by one streaming query."""

    reads: str
    reads_line: int
    mode: str
    trigger: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Checked content of a SPEC."""

    path: Path
    name: str
    storage: str
    spark: Mapping[str, str]
    clusters: Mapping[str, ClusterSettings]
    sources: Mapping[str, Source]
    lookups: Mapping[str, Source]
    views: Mapping[str, View]
    sinks: Mapping[str, Sink]
    problems: Problems

    @property
    def local_storage(self) -> Path | None:
        """Storage folder if it is on this machine, else None."""
        return local_path(self.storage)

    def checkpoint(self, sink: Sink) -> str:
        """Return the location of a sink's checkpoint."""
        return str(sink.option("checkpointLocation") or f"{self.storage}/checkpoints/{sink.name}")

    @property
    def continuous(self) -> set[str]:
        """Return the names of sinks whose queries run until they are stopped."""
        return {name for name, sink in self.sinks.items() if sink.trigger != AVAILABLE_NOW}

    def behind(self, sink: Sink) -> set[str]:
        """Return the sources and lookups whose names occur in the views of a sink.

        A name may also be that of a column, so the result may contain too many.
        """
        known = {name.lower(): name for name in (*self.sources, *self.lookups, *self.views)}
        found: set[str] = set()
        todo = [sink.reads]
        while todo:
            name = known.get(todo.pop().lower())
            if name is not None and name not in found:
                found.add(name)
                todo += re.findall(r"\w+", self.views[name].sql) if name in self.views else []
        return found - self.views.keys()


def parse(document: Document) -> Pipeline:
    """Check a document; raises `SpecError` with all problems."""
    pipeline = _Parser(document).pipeline()
    document.problems.check()
    return pipeline


def _line_named(message: str, lines: Mapping[str, int], otherwise: int) -> int:
    words = message.lower()
    about = re.match(r"options? ([\w.]+)", words)
    if about is not None and about[1] in lines:
        return lines[about[1]]
    named = [name for name in lines if name.removeprefix("kafka.") in words]
    return lines[max(named, key=len)] if named else otherwise


def _check_options(place: Place, query: str) -> None:
    if isinstance(place, Sink):
        from odradek.spark.sink.sink_options import parse_sink_options

        parse_sink_options(place.options, query)
    else:
        from odradek.spark.options.source_options import parse_options

        parse_options(place.options, query)


class _Parser:
    """Parses a document once; notes problems and continues."""

    def __init__(self, document: Document) -> None:
        self._document, self._problems = document, document.problems
        self._folder = document.path.resolve().parent
        self._registries: dict[str, Registry] = {}

    def pipeline(self) -> Pipeline:
        root = self._map(self._document.root, "the SPEC", TOP)
        name = self._required(root, "name", self._document.root.line, "the SPEC")
        storage = self._required(root, "storage", self._document.root.line, "the SPEC")
        trigger = self._trigger(root.get("trigger"), DEFAULT_TRIGGER)
        spark = {k: self._text(v, k) for k, v in self._entries(root, "spark").items()}
        clusters = {n: self._cluster(n, v) for n, v in self._entries(root, "clusters").items()}
        self._registries = {
            n: self._registry(n, v) for n, v in self._entries(root, "registries").items()
        }
        sources = {
            n: self._source(n, v, OURS, clusters, stream=True)
            for n, v in self._named(root, "sources").items()
        }
        lookups = {
            n: self._source(n, v, "", clusters, stream=False)
            for n, v in self._named(root, "lookups").items()
        }
        views = {
            n: View(n, v.key_line, self._text(v, n).rstrip().rstrip(";"), v.text_line)
            for n, v in self._named(root, "views").items()
        }
        self._once({"sources": sources, "lookups": lookups, "views": views})
        sinks = {
            n: self._sink(n, v, trigger, clusters, {**sources, **views}, lookups)
            for n, v in self._named(root, "sinks").items()
        }
        for wanted, found in (("sources", sources), ("sinks", sinks)):
            if not found:
                line = root[wanted].key_line if wanted in root else self._document.root.line
                self._problems.add(line, f"a pipeline needs at least one entry in {wanted}")
        pipeline = Pipeline(
            self._document.path, name, self._placed(storage), spark, clusters, sources,
            lookups, views, sinks, self._problems,
        )  # fmt: skip
        self._check_checkpoints(pipeline)
        return pipeline

    def _check_checkpoints(self, pipeline: Pipeline) -> None:
        """Reject a checkpoint shared by two sinks, which Spark would treat as one query."""
        used: dict[str, str] = {}
        for name, sink in pipeline.sinks.items():
            place = pipeline.checkpoint(sink)
            other = used.setdefault(resolved(place), name)
            if other != name:
                self._problems.add(
                    sink.lines.get("checkpointlocation", sink.line),
                    f"sink {name}: {place} is the checkpoint of sink {other}. Each sink needs its "
                    "own: remove checkpointLocation, or choose another place",
                )

    # Sections of a SPEC

    def _cluster(self, name: str, node: Node) -> ClusterSettings:
        entries = self._map(node, f"cluster {name}", None)
        file = entries.pop("properties", None)
        path = None if file is None else Path(self._placed(self._text(file, "properties")))
        if path is not None and file is not None and not path.is_file():
            self._problems.add(file.line, f"properties: file {path} doesn't exist")
        lines = {key.lower(): value.key_line for key, value in entries.items()}
        for key, value in entries.items():
            if key.startswith("kafka."):
                short = key.removeprefix("kafka.")
                self._problems.add(value.key_line, f"{key}: leave out kafka. in a cluster: {short}")
        settings = sealed({key: self._text(value, key) for key, value in entries.items()})
        if path is None and "bootstrap.servers" not in settings:
            self._problems.add(node.key_line, f"cluster {name}: bootstrap.servers is missing")
        return ClusterSettings(name, node.key_line, settings, path, lines)

    def _registry(self, name: str, node: Node) -> Registry:
        from odradek.serialization.registry.settings import registry_settings, with_secrets

        entries = self._map(node, f"registry {name}", None)
        settings = {key: self._text(value, key) for key, value in entries.items()}
        lines = {key.lower(): value.key_line for key, value in entries.items()}
        sealed_settings = with_secrets(settings)
        try:
            registry_settings(sealed_settings)
        except KafkaError as error:
            line = _line_named(str(error), lines, node.key_line)
            self._problems.add(line, f"registry {name}: {error}")
        names = {key: "schemaRegistryUrl" if key in URLS else PREFIX + key for key in settings}
        return Registry(
            {names[key]: value for key, value in sealed_settings.items()},
            {names[key].lower(): entries[key].key_line for key in names},
        )

    def _source(
        self,
        name: str,
        node: Node,
        usual: str,
        clusters: Mapping[str, ClusterSettings],
        *,
        stream: bool,
    ) -> Source:
        what = f"{'source' if stream else 'lookup'} {name}"
        entries = self._map(node, what, OF_SOURCE if stream else OF_LOOKUP)
        where = self._format(entries, usual, node.key_line, what)
        cluster = self._of_cluster(entries, where, clusters, node.key_line, what)
        options, lines = self._options(entries, cluster, "consumer")
        self._columns(entries, where, options, lines, what)
        self._moved(entries, "deadLetterTopic", where, options, lines, what)
        schema = entries.get("schema")
        source = Source(
            name, node.key_line, where, cluster, options, lines,
            None if schema is None else self._text(schema, "schema"),
            node.key_line if schema is None else schema.text_line,
        )  # fmt: skip
        self._check(what, source, stream=stream)
        return source

    def _sink(
        self,
        name: str,
        node: Node,
        trigger: str,
        clusters: Mapping[str, ClusterSettings],
        readable: Mapping[str, Any],
        lookups: Mapping[str, Source],
    ) -> Sink:
        what = f"sink {name}"
        entries = self._map(node, what, OF_SINK)
        reads = self._required(entries, "from", node.key_line, what)
        reads_line = entries["from"].line if "from" in entries else node.key_line
        if reads in lookups:
            self._problems.add(
                reads_line, f"{what}: {reads} is a lookup; a sink must read a source or a view"
            )
        elif reads and reads not in readable:
            self._problems.add(
                reads_line, f"{what}: unknown source or view {reads}{close_to(reads, readable)}"
            )
        where = self._format(entries, OURS, node.key_line, what)
        cluster = self._of_cluster(entries, where, clusters, node.key_line, what)
        options, lines = self._options(entries, cluster, "producer")
        self._columns(entries, where, options, lines, what)
        self._moved(entries, "delivery", where, options, lines, what)
        mode = self._one_of(entries, "mode", MODES, "append")
        if mode == "update" and where == OURS:
            self._problems.add(
                entries["mode"].line,
                f"mode: Spark only supports append and complete for {OURS}, as it is a Python "
                "data source; for updates, write a program that uses foreachBatch with "
                "odradek.spark.write_batch (docs/spark.md)",
            )
        split = entries.get("partitionBy")
        columns = () if split is None else tuple(self._list(split, "partitionBy"))
        if split is not None:
            lines["partitionby"] = split.key_line
        if columns and where == OURS and split is not None:
            self._problems.add(
                split.key_line, "partitionBy is for files; for topics, use a column named partition"
            )
        sink = Sink(
            name, node.key_line, where, cluster, options, lines, reads, reads_line, mode,
            self._trigger(entries.get("trigger"), trigger), columns,
        )  # fmt: skip
        self._check(what, sink)
        return sink

    def _columns(
        self,
        entries: Mapping[str, Node],
        where: str,
        options: dict[str, Any],
        lines: dict[str, int],
        what: str,
    ) -> None:
        """Convert `key` and `value` to options; a text is only the format."""
        used: dict[str, Registry] = {}
        without: list[Node] = []
        for name in ("key", "value"):
            node = entries.get(name)
            if node is None:
                continue
            if where != OURS:
                self._problems.add(
                    node.key_line, f"{what}: {name} needs format {OURS}, not {where}"
                )
                continue
            if isinstance(node.value, str):
                parts = {"format": node}
            else:
                parts = self._map(node, f"{name} of {what}", OF_COLUMN)
                self._required(parts, "format", node.key_line, f"{name} of {what}")
            if "registry" not in parts:
                without.append(node)
            elif not self._uses(parts["registry"], used, what):
                continue
            for part, one in parts.items():
                if part != "registry":
                    option = self._option_of(name, part, entries, parts)
                    self._put(option, self._text(one, part), one, options, lines)
        if used:
            for node in without:
                self._problems.add(
                    node.key_line,
                    f"{what}: registry is missing: set one for both keys and values, or for "
                    "neither",
                )
        for registry in used.values():
            for option, value in registry.options.items():
                if option.lower() in lines:
                    line = lines[option.lower()]
                    self._problems.add(line, f"{option} is already set by the registry")
                options[option] = value
            lines |= registry.lines

    def _uses(self, node: Node, used: dict[str, Registry], what: str) -> bool:
        """Record which registry a column uses; key and value must use the same registry."""
        name = self._text(node, "registry")
        found = self._registries.get(name)
        if found is None:
            close = close_to(name, self._registries)
            self._problems.add(node.line, f"unknown registry {name}{close}")
        elif used and name not in used:
            self._problems.add(node.line, f"{what}: keys and values must use the same registry")
        else:
            used[name] = found
            return True
        return False

    @staticmethod
    def _option_of(
        name: str, part: str, entries: Mapping[str, Node], parts: Mapping[str, Node]
    ) -> str:
        """Return the name of the option that an entry of `key` or `value` sets."""
        if part != "schema":
            return f"{name}{part.capitalize()}"
        # Option avroSchema is for reading or writing; valueSchema is the writer schema of Avro.
        avro = str(parts["format"].value).strip().lower() == "avro" if "format" in parts else False
        return (
            "avroSchema" if avro and ("registry" in parts or "from" in entries) else "valueSchema"
        )

    def _put(
        self,
        option: str,
        value: str,
        node: Node,
        options: dict[str, Any],
        lines: dict[str, int],
    ) -> None:
        """Add an option that has its own key in a SPEC."""
        if option.lower() in lines:
            self._problems.add(
                node.key_line, f"{option} is already set on line {lines[option.lower()]}"
            )
        options[option], lines[option.lower()] = value, node.key_line

    def _moved(
        self,
        entries: Mapping[str, Node],
        option: str,
        where: str,
        options: dict[str, Any],
        lines: dict[str, int],
        what: str,
    ) -> None:
        node = entries.get(option)
        if node is None:
            return
        if where != OURS:
            self._problems.add(
                node.key_line,
                f"{what}: {option} needs format odradek; the guarantees of {where} are Spark's",
            )
        self._put(option, self._text(node, option), node, options, lines)

    def _check(self, what: str, place: Place, *, stream: bool = True) -> None:
        """Check options with the parser of Odradek's data source."""
        if place.format != OURS or place.cluster is None:
            return
        try:
            _check_options(place, "stream" if stream else "batch")
        except KafkaError as error:
            line = place.line_of(str(error))
            if line == place.line:
                line = _line_named(str(error), place.cluster.lines, line)
            self._problems.add(line, f"{what}: {error}")

    # Values

    def _options(
        self, entries: Mapping[str, Node], cluster: ClusterSettings | None, client: str
    ) -> tuple[dict[str, Any], dict[str, int]]:
        found = {}
        if cluster is not None:
            settings = self._file_of(cluster, client) | dict(cluster.settings)
            found = {f"kafka.{key}": value for key, value in settings.items()}
        given = self._entries(entries, "options")
        lines: dict[str, int] = {}
        for key, node in given.items():
            small, value = key.lower(), self._text(node, key)
            if small in lines:
                self._problems.add(
                    node.key_line, f"{key} is already set on line {lines[small]}, in different case"
                )
            lines[small] = node.key_line
            for other in [name for name in found if name.lower() == small]:
                del found[other]
            found[key] = self._placed(value) if small in PATHS else value
        return found, lines

    def _file_of(self, cluster: ClusterSettings, client: str) -> dict[str, Any]:
        from odradek.runtime.properties import read_properties

        if cluster.properties is None or not cluster.properties.is_file():
            return {}
        try:
            return read_properties(cluster.properties, client)
        except KafkaError as error:
            self._problems.add(cluster.line, f"cluster {cluster.name}: {error}")
            return {}

    def _of_cluster(
        self,
        entries: Mapping[str, Node],
        where: str,
        clusters: Mapping[str, ClusterSettings],
        line: int,
        what: str,
    ) -> ClusterSettings | None:
        node = entries.get("cluster")
        if where != OURS:
            if node is not None:
                self._problems.add(node.key_line, f"{what}: cluster needs format odradek")
            return None
        if node is None:
            if len(clusters) == 1:
                return next(iter(clusters.values()))
            self._problems.add(line, f"{what}: cluster is missing{close_to('', clusters)}")
            return None
        name = self._text(node, "cluster")
        if name not in clusters:
            self._problems.add(node.line, f"unknown cluster {name}{close_to(name, clusters)}")
        return clusters.get(name)

    def _format(self, entries: Mapping[str, Node], usual: str, line: int, what: str) -> str:
        if "format" in entries or usual:
            return self._text(entries["format"], "format") if "format" in entries else usual
        return self._required(entries, "format", line, what)

    def _one_of(
        self, entries: Mapping[str, Node], key: str, allowed: Sequence[str], usual: str
    ) -> str:
        node = entries.get(key)
        if node is None:
            return usual
        found = self._text(node, key)
        if found not in allowed:
            self._problems.add(node.line, f"{key}: {found!r} can't be used{close_to('', allowed)}")
            return usual
        return found

    def _trigger(self, node: Node | None, usual: str) -> str:
        if node is None:
            return usual
        text = self._text(node, "trigger").strip()
        if text.lower() == AVAILABLE_NOW.lower():
            return AVAILABLE_NOW
        match = _TRIGGER.fullmatch(text)
        if match is None:
            self._problems.add(
                node.line,
                f"trigger: expected availableNow or an interval such as 2 seconds, not {text!r}",
            )
            return usual
        unit = match[2].lower()
        return f"{match[1]} {'milliseconds' if unit.startswith(('ms', 'mil')) else _UNITS[unit[0]]}"

    def _placed(self, path: str) -> str:
        """Return a path relative to the SPEC, unless it is absolute or has a scheme."""
        return path if SCHEME.match(path) else str(self._folder / path)

    # Shapes

    def _named(self, root: Mapping[str, Node], key: str) -> dict[str, Node]:
        found = self._entries(root, key)
        for name, node in found.items():
            if not _NAME.fullmatch(name):
                self._problems.add(
                    node.key_line, f"{key}: {name!r} isn't a valid SQL name (letters, digits, _)"
                )
        return found

    def _once(self, kinds: Mapping[str, Mapping[str, Any]]) -> None:
        seen: dict[str, str] = {}
        for kind, entries in kinds.items():
            for name, entry in entries.items():
                if name in seen:
                    self._problems.add(entry.line, f"{name} is already one of the {seen[name]}")
                seen.setdefault(name, kind)

    def _entries(self, root: Mapping[str, Node], key: str) -> dict[str, Node]:
        return self._map(root[key], key, None) if key in root else {}

    def _map(self, node: Node, what: str, known: Sequence[str] | None) -> dict[str, Node]:
        if not isinstance(node.value, dict):
            if node.value != "":
                self._problems.add(node.line, f"{what} must be a map, not {node.kind}")
            return {}
        found = dict(node.value)
        for key, value in node.value.items():
            if known is not None and key not in known:
                self._problems.add(
                    value.key_line, f"{what}: unknown key {key}{close_to(key, known)}"
                )
                del found[key]
        return found

    def _text(self, node: Node, what: str) -> str:
        if isinstance(node.value, str):
            return node.value
        self._problems.add(node.line, f"{what} must be a string, not {node.kind}")
        return ""

    def _list(self, node: Node, what: str) -> list[str]:
        items = node.value if isinstance(node.value, list) else [node]
        return [self._text(item, what) for item in items]

    def _required(self, entries: Mapping[str, Node], key: str, line: int, what: str) -> str:
        if key not in entries:
            self._problems.add(line, f"{what}: {key} is missing")
            return ""
        text = self._text(entries[key], key).strip()
        if not text and isinstance(entries[key].value, str):
            self._problems.add(entries[key].line, f"{what}: {key} is empty")
        return text
