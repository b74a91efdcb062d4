"""Check that docs/spark.md agrees with the code, and names all options in Spark's guide."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.common.options.option_aliases import ALIASES
from odradek.common.options.security import SECRETS
from odradek.serialization.registry.settings import SECRETS as REGISTRY_SECRETS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
OPTIONS = PAGE.with_name("configuration.md")


def test_the_documented_redaction_for_spark_connect_matches_every_secret() -> None:
    """The test uses Python; the regular expression has the same meaning in Java."""
    given = re.findall(r"redaction\.string\.regex=(.*)'", PAGE.read_text())
    assert len(given) == 2
    names = SECRETS | {alias for alias, meaning in ALIASES.items() if meaning in SECRETS}
    for expression in given:
        for name in sorted(names):
            shown = f'key: "kafka.{name}"\n value: "pass \\"word\\" 1"\n}}'
            assert re.sub(expression, "***", shown) == 'key: "***\n}', name
        for name in REGISTRY_SECRETS:
            shown = f'key: "schemaRegistry.{name}"\n value: "me:word"\n}}'
            assert re.sub(expression, "***", shown) == 'key: "***\n}', name
        assert re.search(expression, 'key: "kafka.client.id"\n value: "etl"') is None


TESTS = Path(__file__).resolve().parents[2]
GUIDE = (
    "assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp "
    "startingOffsetsByTimestamp startingOffsets endingTimestamp endingOffsetsByTimestamp "
    "endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries "
    "fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay "
    "minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id includeHeaders "
    "startingOffsetsByTimestampStrategy spark.sql.streaming.kafka.useDeprecatedOffsetFetching "
    "spark.kafka.consumer.cache.* spark.kafka.consumer.fetchedData.* spark.kafka.producer.cache.* "
    "spark.kafka.clusters.* kafka.isolation.level topic kafka.auto.offset.reset "
    "kafka.key.deserializer kafka.value.deserializer kafka.enable.auto.commit "
    "kafka.interceptor.classes"
)
"""Names of the options in Spark's guide to its Kafka connector."""


def differences() -> list[list[str]]:
    """Return the rows, as lists of cells, of the page's table of differences."""
    [found] = re.findall(r"<!-- differences -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    rows = [line.strip("|").split(" | ") for line in found.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not row[0].strip().startswith("**")]


def test_each_documented_difference_names_an_existing_test() -> None:
    places = ("unit/spark", "unit/cli/pipeline", "spark", "simulation")
    files = [file for place in places for file in (TESTS / place).glob("test_*.py")]
    there = {name for file in files for name in re.findall(r"def test_(\w+)\(", file.read_text())}
    cases = (TESTS / "spark" / "parity_cases.py").read_text()
    rows = differences()
    assert len(rows) > 40
    for row in rows:
        assert len(row) == 4, row
        tests, parity = re.findall(r"`(\w+)`", row[3]), re.findall(r"\*([^*]+)\*", row[3])
        assert tests or parity, f"nothing keeps this true: {row[0]}"
        assert set(tests) <= there, f"no such tests: {set(tests) - there}"
        for name in parity:
            assert f'"{name}"' in cases, f"the parity test has no case {name}"


def test_the_page_names_all_options_of_sparks_guide() -> None:
    page, options = PAGE.read_text(), OPTIONS.read_text()
    assert [
        name
        for name in GUIDE.split()
        if f"`{name}`" not in page and f"`{name}=" not in page and f"### {name}\n" not in options
    ] == []
