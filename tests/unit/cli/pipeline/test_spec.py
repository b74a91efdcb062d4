"""Test how a pipeline's file is parsed: valid values; all errors at once, with their lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.pipeline.document import SpecError, YamlReader, read
from odradek.cli.pipeline.spec import AVAILABLE_NOW, Pipeline, parse

GOOD = """\
name: flights
storage: state
trigger: 2s
spark: {spark.master: "local[2]"}
clusters:
  main:
    bootstrap.servers: ${KAFKA:-localhost:9092}
    sasl.password: ${PASSWORD}
sources:
  flights:
    options: {subscribe: flights, startingOffsets: earliest}
lookups:
  carriers:
    format: csv
    schema: code STRING, name STRING
    options: {path: carriers.csv, header: true}
views:
  landed: |
    SELECT name
    FROM flights LEFT JOIN carriers ON code = key;
sinks:
  files:
    from: landed
    format: parquet
    trigger: availableNow
    partitionBy: [day]
    options: {path: out}
"""
PASSWORD = "hunter2-and-more"  # noqa: S105  # nobody's


def parsed(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "spec.yml"
    path.write_text(text)
    return parse(read(path, {"PASSWORD": PASSWORD}))


def problems(tmp_path: Path, text: str) -> list[str]:
    """Return the errors in a pipeline's file, each as `line: text` without the file's name."""
    with pytest.raises(SpecError) as caught:
        parsed(tmp_path, text)
    return [line.removeprefix(f"{tmp_path}/spec.yml:") for line in str(caught.value).splitlines()]


def test_a_valid_file_is_parsed(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path, GOOD)
    assert pipeline.storage == str(tmp_path / "state")
    assert pipeline.local_storage == tmp_path / "state"
    source = pipeline.sources["flights"]
    assert source.options["subscribe"] == "flights"
    assert source.options["kafka.bootstrap.servers"] == "localhost:9092"
    lookup = pipeline.lookups["carriers"]
    assert lookup.options == {"path": str(tmp_path / "carriers.csv"), "header": "true"}
    assert pipeline.views["landed"].sql.endswith("ON code = key")
    assert pipeline.views["landed"].sql_line == 19
    sink = pipeline.sinks["files"]
    assert (sink.reads, sink.trigger, sink.partition_by) == ("landed", AVAILABLE_NOW, ("day",))


def test_option_names_ignore_case_as_in_spark(tmp_path: Path) -> None:
    text = GOOD.replace("{path: out}", "{Path: out, CHECKPOINTLOCATION: own, Delivery: x}")
    pipeline = parsed(tmp_path, text)
    sink = pipeline.sinks["files"]
    assert (sink.option("path"), sink.option("delivery")) == (str(tmp_path / "out"), "x")
    assert pipeline.checkpoint(sink) == str(tmp_path / "own")
    text = GOOD.replace("{subscribe:", "{Kafka.Bootstrap.Servers: here:1, Subscribe:")
    options = parsed(tmp_path, text).sources["flights"].options
    assert [v for k, v in options.items() if k.lower() == "kafka.bootstrap.servers"] == ["here:1"]
    twice = problems(tmp_path, GOOD.replace("{path: out}", "\n      path: a\n      Path: b"))
    assert twice == ["29: Path is already set on line 28, in different case"]
    topic = "format: odradek\n    delivery: exactly_once\n    options: {topic: t, Delivery: at_"
    text = GOOD[: GOOD.index("format: parquet")] + topic + "least_once}\n"
    assert problems(tmp_path, text) == ["25: delivery is already set on line 26"]


def test_a_lookup_may_use_another_cluster_and_counts_as_an_input_of_the_sink(
    tmp_path: Path,
) -> None:
    text = GOOD.replace("  main:", "  other: {bootstrap.servers: 'x:1'}\n  main:").replace(
        "  flights:\n", "  flights:\n    cluster: main\n"
    )
    topic = "format: odradek\n    cluster: other\n    options: {subscribe: t}\n"
    start, end = text.index("format: csv"), text.index("views:")
    pipeline = parsed(tmp_path, text[:start] + topic + text[end:])
    assert pipeline.lookups["carriers"].cluster == pipeline.clusters["other"]
    assert pipeline.behind(pipeline.sinks["files"]) == {"flights", "carriers"}


def test_no_repr_of_a_pipeline_shows_a_secret(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path, GOOD)
    password = pipeline.sources["flights"].options["kafka.sasl.password"]
    assert password.reveal() == PASSWORD
    assert PASSWORD not in f"{pipeline!r} {pipeline.clusters} {dict(pipeline.sources)}"


REGISTRY = """\
registries:
  main:
    url: http://localhost:8081
    basic.auth.user.info: me:${PASSWORD}
  other: {url: "http://localhost:8082"}
sources:
  flights:
    key: {format: avro, registry: main, subject: codes}
    value:
      format: avro
      registry: main
      schema: >-
        {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    deadLetterTopic: flights-bad
    options: {subscribe: flights, startingOffsets: earliest}
"""
WITH_REGISTRY = GOOD.replace(GOOD[GOOD.index("sources:") : GOOD.index("lookups:")], REGISTRY)
JSON_SINK = """\
  files:
    from: landed
    value: {format: json, registry: other, version: 3}
    options: {topic: t}
"""


def test_formats_of_keys_and_values_become_options(tmp_path: Path) -> None:
    """A format is converted to options of the source or sink, which are then checked."""
    text = WITH_REGISTRY[: WITH_REGISTRY.index("  files:\n")] + JSON_SINK
    pipeline = parsed(tmp_path, text)
    options = dict(pipeline.sources["flights"].options)
    assert options.pop("schemaRegistry.basic.auth.user.info").reveal() == f"me:{PASSWORD}"
    assert options["schemaRegistryUrl"] == "http://localhost:8081"
    assert options["deadLetterTopic"] == "flights-bad"
    assert (options["keyFormat"], options["keySubject"]) == ("avro", "codes")
    assert (options["valueFormat"], options["avroSchema"][:9]) == ("avro", '{"type": ')
    found = {k: v for k, v in pipeline.sinks["files"].options.items() if "kafka." not in k}
    assert found == {
        "topic": "t",
        "valueFormat": "json",
        "valueVersion": "3",
        "schemaRegistryUrl": "http://localhost:8082",
    }
    assert PASSWORD not in f"{pipeline!r}"
    plain = GOOD.replace(
        "    options: {subscribe",
        "    value: {format: json, schema: id int}\n    options: {subscribe",
    )
    options = dict(parsed(tmp_path, plain).sources["flights"].options)
    assert (options["valueFormat"], options["valueSchema"]) == ("json", "id int")


@pytest.mark.parametrize(
    ("given", "instead", "expected"),
    [
        ("format: avro, reg", "format: xml, reg", "16: source flights: option keyFormat must be"),
        ("avro, registry: main, sub", "avro, registry: none, sub", "16: unknown registry none"),
        (
            "avro, registry: main, sub",
            "avro, registry: other, sub",
            "19: source flights: keys and ",
        ),
        (
            "      registry: main\n",
            "",
            "17: source flights: registry is missing: set one for both",
        ),
        ("subject: codes", "subjekt: codes", "16: key of source flights: unknown key subjekt"),
        ("format: avro, reg", "reg", "16: key of source flights: format is missing"),
        ("    url: http://localhost:8081\n", "", "10: registry main: schema.registry.url is miss"),
        ("basic.auth.user.info", "basic.auth.user.inf", "12: registry main: basic.auth.user.inf:"),
        ("deadLetterTopic: flights-bad", "deadLetterTopic: flights", "22: source flights: option"),
        (
            "{subscribe: flights,",
            "{valueFormat: json, subscribe: flights,",
            "valueFormat is already set on",
        ),
        ("    format: parquet\n", "    format: parquet\n    value: avro\n", "value needs format"),
        (
            "    format: csv\n",
            "    format: csv\n    deadLetterTopic: x\n",
            "unknown key deadLetterTopic",
        ),
    ],
)
def test_errors_in_formats_name_the_line(
    tmp_path: Path, given: str, instead: str, expected: str
) -> None:
    assert given in WITH_REGISTRY
    text = WITH_REGISTRY.replace(given, instead, 1)
    found = problems(tmp_path, text)
    assert any(re.search(expected, line) for line in found), found
    assert PASSWORD not in str(found)


@pytest.mark.parametrize(
    ("given", "instead", "expected"),
    [
        ("storage: state\n", "", "1: the SPEC: storage is missing"),
        ("storage: state", "storage:", "2: the SPEC: storage is empty"),
        ("trigger: 2s", "trigger: soon", "3: trigger: expected availableNow or an interval such"),
        ("sources:", "suorces:", "9: the SPEC: unknown key suorces; did you mean sources?"),
        ("${PASSWORD}", "${PASWORD}", "8:20: environment variable PASWORD isn't set"),
        ("sasl.password", "sasl.pasword", "8: source flights: in the options kafka.*: "),
        ("subscribe: flights", "subscribed: x", "11: source flights: unknown option"),
        ("startingOffsets: earliest", "startingOffsets: '{'", "11: source flights: option sta"),
        ("    format: csv\n", "", "13: lookup carriers: format is missing"),
        ("from: landed", "from: carriers", "23: sink files: carriers is a lookup"),
        ("from: landed", "from: lande", "23: sink files: unknown source or view lande; did"),
        ("    partitionBy: [day]", "    delivery: exactly_once", "26: sink files: delivery needs"),
        ("    partitionBy: [day]", "    mode: apend", "26: mode: 'apend' can't be used; use"),
        (
            "    format: parquet\n",
            "    format: odradek\n    mode: update\n",
            "25: mode: Spark only supports append and complete for odradek, as",
        ),
        ("  landed: |", "  flights: |", "18: flights is already one of the sources"),
        ("  landed: |", "  a-b: |", "18: views: 'a-b' isn't a valid SQL name"),
        (
            "  files:\n",
            "  files:\n    cluster: main\n",
            "23: sink files: cluster needs format odr",
        ),
        (
            "    options: {subscribe",
            "    cluster: man\n    options: {subscribe",
            "11: unknown cluster man",
        ),
        ("options: {path: out}", "options: [path, out]", "27: options must be a map, not a list"),
        ("name: flights", "name: [flights]", "1: name must be a string, not a list"),
        ("  main:\n", "  main:\n    properties: no.such\n", "7: properties: file "),
        (
            "    bootstrap.servers",
            "    kafka.bootstrap.servers",
            "7: kafka.bootstrap.servers: leave out",
        ),
        (
            "  main:",
            "  other: {bootstrap.servers: x:1}\n  main:",
            "11: source flights: cluster is miss",
        ),
        ("name: flights", "name: flights\nname: again", "2: name is already set on line 1"),
        ("name: flights", 'name: "flights', "not YAML"),
        ("sinks:\n", "sinks: {}\nviews_:\n", "21: a pipeline needs at least one entry in sinks"),
    ],
)
def test_each_error_names_its_line(tmp_path: Path, given: str, instead: str, expected: str) -> None:
    assert given in GOOD
    found = problems(tmp_path, GOOD.replace(given, instead, 1))
    assert any(expected in line for line in found), found
    assert PASSWORD not in str(found)


def test_all_errors_are_reported_at_once_in_order(tmp_path: Path) -> None:
    text = (
        GOOD.replace("2s", "soon")
        .replace("from: landed", "from: x")
        .replace("format: csv", "format: []")
    )
    lines = [int(line.split(":")[0]) for line in problems(tmp_path, text)]
    assert len(lines) == 3
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("500 ms", "500 milliseconds"),
        ("2 Seconds", "2 seconds"),
        ("10s", "10 seconds"),
        ("5 min", "5 minutes"),
        ("1h", "1 hours"),
        ("availablenow", AVAILABLE_NOW),
    ],
)
def test_triggers_are_parsed(tmp_path: Path, given: str, means: str) -> None:
    text = GOOD.replace("trigger: availableNow", f"trigger: {given}")
    assert parsed(tmp_path, text).sinks["files"].trigger == means


def test_settings_in_the_pipelines_file_override_a_properties_file(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "bootstrap.servers=other:1\nssl.endpoint.identification.algorithm=\nlinger.ms=5\n"
    )
    text = GOOD.replace("  main:\n", "  main:\n    properties: client.properties\n")
    options = parsed(tmp_path, text).sources["flights"].options
    assert options["kafka.bootstrap.servers"] == "localhost:9092"
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert "kafka.linger.ms" not in options  # a consumer has no such option


def test_a_missing_or_empty_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="can't be read"):
        read(tmp_path / "none.yml", {})
    (tmp_path / "empty.yml").write_text("# nothing\n")
    with pytest.raises(SpecError, match="is empty"):
        read(tmp_path / "empty.yml", {})


def test_dollar_signs_can_be_escaped_and_variables_have_defaults(tmp_path: Path) -> None:
    path = tmp_path / "spec.yml"
    path.write_text("a: $${HOME} ${A}-${B:-b}\n")
    root = read(path, {"A": "1"}).root
    assert isinstance(root.value, dict)
    assert root.value["a"].value == "${HOME} 1-b"


def test_yaml_aliases_are_rejected_before_they_are_expanded(tmp_path: Path) -> None:
    """Ten lines of nested aliases would expand to ten billion strings."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)]
    [problem] = problems(tmp_path, "\n".join(lines))
    assert problem == "2: aliases such as *a0 aren't supported; write the value out"


def test_yaml_values_that_are_nested_too_deeply_are_rejected(tmp_path: Path) -> None:
    """Deeper values would exceed Python's recursion limit."""
    [problem] = problems(tmp_path, "name: x\nviews: " + "[" * 100_000)
    assert problem == "2: lists and maps are nested more than 50 levels deep"


@pytest.mark.parametrize(
    "text",
    [
        'name: "\\UFFFFFFFF"',
        'name: "\\U00110000"',
        "%YAML 1." + "0" * 5000 + "\n---\nname: x",
        "%YAML " + "1" * 5000 + ".1\n---\nname: x",
    ],
    ids=["beyond C's int", "beyond Unicode", "minor", "major"],
)
def test_yaml_numbers_that_python_rejects_are_reported_as_errors_of_the_file(
    tmp_path: Path, text: str
) -> None:
    """PyYAML doesn't catch the OverflowError of `chr` and the ValueError of `int`."""
    with pytest.raises(
        SpecError, match=r"spec\.yml isn't YAML: it contains an escape or a version"
    ):
        parsed(tmp_path, text)


def test_two_sinks_cannot_share_a_checkpoint(tmp_path: Path) -> None:
    more = """
  first:
    from: landed
    format: parquet
    options: {path: one, checkpointLocation: state/x/../both}
  second:
    from: landed
    format: parquet
    options: {path: two, checkpointLocation: state/both/}
  third:
    from: landed
    format: parquet
    options: {path: three, checkpointLocation: state/checkpoints/files}
"""
    found = problems(tmp_path, GOOD + more.lstrip("\n"))
    assert ["is the checkpoint of sink" in text for text in found] == [True, True]
    assert "sink second" in found[0]
    assert "sink first" in found[0]
    assert "sink third" in found[1]
    assert "sink files" in found[1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("${SET}", "value"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${UNSET:-d}", "d"),
        ("${SET:-d}", "value"),
        ("${SET:-${UNSET}}", "value"),
        ("${UNSET:-}", ""),
        ("${RE:-orders-[0-9]{2}}", "orders-[0-9]{2}"),
        ("${RE:-([a-z]{1,2}|x{3})+}/{y}", "([a-z]{1,2}|x{3})+/{y}"),
        ("a${UNSET:-b${SET}c${UNSET:-{d}}}e", "abvaluec{d}e"),
        ("$${SET} $${UNSET:-$${x}}", "${SET} ${UNSET:-${x}}"),
        ("${UNSET:-$${SET}}", "${SET}"),
        ("$.a[0]{x} $ {SET} }{ $SET", "$.a[0]{x} $ {SET} }{ $SET"),
        ("${HOSTILE}", "${SET}}{"),
    ],
)
def test_environment_variables_in_the_file_are_replaced(
    tmp_path: Path, given: str, expected: str
) -> None:
    path = tmp_path / "spec.yml"
    path.write_text(f"a: '{given}'\n")
    values = {"SET": "value", "EMPTY": "", "HOSTILE": "${SET}}{"}
    document = read(path, values)
    document.problems.check()
    root = document.root.value
    assert isinstance(root, dict)
    assert root["a"].value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("storage: x/${my-dir}", "1:12: '${my-dir}' isn't a variable: write ${NAME} or"),
        ("storage: ${X-d}", "1:10: '${X-d}' isn't a variable"),
        ("storage: ${}", "1:10: '${}' isn't a variable"),
        ("storage: ${2x}", "1:10: '${2x}' isn't a variable"),
        ("storage: ${X:?why}", "1:10: '${X:?why}' isn't a variable"),
        ("storage: ${KAFKA", "1:10: the closing brace of a variable is missing"),
        ("storage: $${a} ${KAFKA:-{x}", "1:16: the closing brace of a variable is missing"),
        ("storage: ${A:-b${C:-d}", "1:10: the closing brace of a variable is missing"),
        ("a: 1\nstorage: 'it''s ${NONE}'", "2:17: environment variable NONE isn't set"),
        ("storage: |\n  a\n    b ${NONE}", "3:7: environment variable NONE isn't set"),
        ("storage: >\n  a\n  b ${NONE}", "3:5: environment variable NONE isn't set"),
        ('storage: "\\x24{NONE}"', "1: environment variable NONE isn't set"),
        (f"storage: {'${A:-' * 51}{'}' * 51}", "1:260: variables are nested more than 50"),
    ],
)
def test_errors_in_variables_name_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text + "\n")
    assert any(line.startswith(expected) for line in found), found


class CountedText(str):
    """A string that counts the characters that its methods examine."""

    looked_at = 0

    def __getitem__(self, key: Any) -> str:
        found = str.__getitem__(self, key)
        CountedText.looked_at += len(found)
        return found

    def find(self, word: str, begin: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        found = str.find(self, word, begin, end)
        stop = len(self) if end is None else min(end, len(self))
        CountedText.looked_at += (stop if found < 0 else found) - begin
        return found

    def rfind(self, *given: Any) -> int:
        CountedText.looked_at += len(self)
        return str.rfind(self, *given)

    def count(self, word: str, begin: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        CountedText.looked_at += (len(self) if end is None else end) - begin
        return str.count(self, word, begin, end)


@pytest.mark.parametrize(
    ("one", "last"),
    [
        ("${-", ""),
        ("${-", "}"),
        ("${-}", ""),
        ("${NONE}", ""),
        ("\n  ${-", ""),
        ("', '${-", ""),
    ],
)
def test_invalid_variables_are_parsed_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, last: str
) -> None:
    filled = YamlReader._filled

    def counted(reader: Any, composed: Any) -> str:
        composed.value, reader._text = CountedText(composed.value), CountedText(reader._text)
        return filled(reader, composed)

    monkeypatch.setattr(YamlReader, "_filled", counted)
    looked_at = []
    for count in (200, 400):
        CountedText.looked_at = 0
        assert problems(tmp_path, f"storage: ['{one * count}{last}']\n")
        looked_at.append(CountedText.looked_at)
    assert looked_at[1] < 2.5 * looked_at[0]
