"""The source's classes as Spark uses them, without a JVM: imports, creation, pickling."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, StructType
from tests.time_limits import HANG_S
from tests.unit.spark.conftest import ID_1, P0, P1

import odradek.spark
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver import stream_source
from odradek.spark.driver.offsets import SENTINEL, StreamOffset
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.driver.stream_source import KafkaStreamReader
from odradek.spark.options.option_values import LONG_MAX
from odradek.spark.tasks.task import KafkaInputPartition

VALUE = StructType().add("value", BinaryType())
OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


def source(**given: str) -> KafkaDataSource:
    return KafkaDataSource({**OPTIONS, **given})


IMPORTED = """
import sys, odradek.spark
print([m for m in ("pyspark", "pyarrow", "pandas") if m in sys.modules])
"""
MISSING = """
import sys
sys.modules["pyspark"] = None
import odradek.spark, pyspark_odradek
print(hasattr(pyspark_odradek, "DefaultSource"))
try:
    odradek.spark.KafkaDataSource
except ImportError as error:
    print(error)
"""
BROKEN = """
import sys
sys.modules["odradek.spark.driver.source"] = None
import pyspark_odradek
print(pyspark_odradek.DefaultSource.name())
try:
    pyspark_odradek.DefaultSource({})
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "told"),
    [
        (IMPORTED, r"\[\]"),  # importing odradek.spark imports neither Spark nor Arrow
        (MISSING, r"False\n.*pip install 'odradek\[spark\]'.*"),
        (BROKEN, r"odradek\n.*can't be used.*"),  # other formats must still be found
    ],
    ids=["all is there", "no Spark", "a fault in the source"],
)
def test_importing_odradek_spark_needs_no_pyspark_and_import_errors_are_explained(
    program: str, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(told, done.stdout.strip(), re.DOTALL)


@pytest.mark.slow
def test_the_module_that_spark_discovers_exports_the_source() -> None:
    found = importlib.import_module("pyspark_odradek")
    assert found.DefaultSource is odradek.spark.KafkaDataSource
    assert KafkaDataSource.name() == "odradek"


def test_creating_a_source_and_its_readers_creates_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a client was made")

    monkeypatch.setattr("odradek.spark.tasks.worker_clients.ClientCache.connect", forbidden)
    schema = source().schema()
    source().reader(schema)
    reader = source().streamReader(schema)
    reader.initialOffset()
    reader.commit({})
    reader.stop()
    assert source(includeHeaders="true").schema().fieldNames()[-1] == "headers"


def test_options_invalid_for_every_query_are_rejected_when_the_frame_is_loaded() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        KafkaDataSource({"subscribe": "t"}).schema()
    assert source(endingOffsets="latest").schema()  # valid for a batch query
    with pytest.raises(OptionError, match="endingOffsets"):
        source(endingOffsets="latest").streamReader(VALUE)
    with pytest.raises(OptionError, match="valeu"):
        source().reader(StructType().add("valeu", BinaryType()))


def test_the_default_read_limit_is_not_read_all_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark passes `ReadAllAvailable` for Trigger.Once, so it mustn't be the default limit."""
    schema = source().schema()
    asked: list[Any] = []

    class Tracker:
        def latest(self, start: Any, *, everything: bool) -> dict[str, Any]:
            asked.append(everything)
            return {}

        def freeze(self) -> None:
            asked.append("freeze")

    monkeypatch.setattr(stream_source, "OffsetTracker", lambda *_: Tracker())
    limited = source(maxOffsetsPerTrigger="5", maxBytesPerTrigger="1k").streamReader(schema)
    assert limited.getDefaultReadLimit() == ReadMaxRows(5)
    weighed = source(maxBytesPerTrigger="1k").streamReader(schema)
    assert weighed.getDefaultReadLimit() == ReadMaxBytes(1024)
    limited.latestOffset(dict(SENTINEL), limited.getDefaultReadLimit())
    plain = source().streamReader(schema)
    assert plain.getDefaultReadLimit() == ReadMaxRows(LONG_MAX)
    plain.latestOffset(dict(SENTINEL), ReadAllAvailable())
    assert isinstance(plain, KafkaStreamReader)
    plain.prepareForTriggerAvailableNow()
    plain.latestOffset(dict(SENTINEL), ReadMaxRows(7))
    assert asked == [False, True, "freeze", False]


class SomethingNew:
    """A fake offset tracker that returns a higher end offset at each call."""

    def latest(self, start: Any, *, everything: bool) -> dict[str, Any]:
        return {"newer": "end"}


def test_a_stream_plans_no_batch_while_the_pause_file_exists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stream_source, "OffsetTracker", lambda *_: SomethingNew())
    path = tmp_path / "pause"
    for given in (str(path), f"file://{path}"):
        reader = source(pauseFile=given).streamReader(VALUE)
        start = StreamOffset({P0: 5}, "c").to_json()
        path.touch()
        for limit in (ReadMaxRows(7), ReadAllAvailable()):
            assert reader.latestOffset(start, limit) == start
        # A new query's first offset must be stored in the checkpoint, even during a pause.
        assert reader.latestOffset(dict(SENTINEL), ReadMaxRows(7)) == {"newer": "end"}
        path.unlink()
        assert reader.latestOffset(start, ReadMaxRows(7)) == {"newer": "end"}


def test_a_pause_file_whose_existence_cannot_be_checked_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stream_source, "OffsetTracker", lambda *_: SomethingNew())
    path = tmp_path / "pause"
    path.symlink_to(path)  # a link to itself, for which `exists()` returns False
    start = StreamOffset({P0: 5}, "c").to_json()
    reader = source(pauseFile=str(path)).streamReader(VALUE)
    with pytest.raises(OptionError, match=r"pauseFile: can't check whether .*pause exists"):
        reader.latestOffset(start, ReadMaxRows(7))
    gone = source(pauseFile=str(tmp_path / "nowhere" / "pause")).streamReader(VALUE)
    assert gone.latestOffset(start, ReadMaxRows(7)) == {"newer": "end"}


def test_the_groups_offsets_are_committed_at_a_runs_start_and_after_each_batch(
    monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    told: list[Any] = []
    committer = SimpleNamespace(
        commit=lambda offsets, timeout: told.append(offsets),
        commit_async=told.append,
        close=lambda timeout: told.append("closed"),
    )

    def consumer(config: Any) -> Any:
        names = ("group.id", "enable.auto.commit", "cluster.id.expected")
        told.append([config[name] for name in names])
        return committer

    monkeypatch.setattr("odradek.api.consumer.Consumer", consumer)
    monkeypatch.setattr(stream_source, "process_clients", lambda: cluster)
    options = {"kafka.group.id": "watched", "commitOffsets": "group"}
    reader = source(**options).streamReader(VALUE)
    start = {"v": 1, "cluster": "cluster-A", "o": {"t": {"0": 90, "1": 20}}, "id": {"t": ID_1}}
    end = reader.latestOffset(start, ReadMaxRows(LONG_MAX))
    assert told == [["watched", False, "cluster-A"], {P0: 90, P1: 20}]
    reader.commit(end)
    reader.stop()
    source().streamReader(VALUE).commit(end)
    assert told[2:] == [{P0: 100}, "closed"]


def test_a_pickled_reader_does_not_contain_the_drivers_client() -> None:
    reader = source().streamReader(source().schema())
    assert isinstance(reader, KafkaStreamReader)
    reader._tracking()
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 (our own bytes)
    assert copy._tracker is None
    assert reader._tracker is not None
    assert copy._options == reader._options


def test_the_partition_that_spark_adds_to_an_empty_batch_has_no_rows() -> None:
    reader = source().reader(source().schema())
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize(("known", "fresh"), [("1", False), ("2", True), (None, False)])
def test_a_worker_whose_client_knows_an_old_topic_id_uses_a_new_client(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, known: str | None, fresh: bool
) -> None:
    asked: list[bool] = []
    topics = {} if known is None else {"t": {"id": known.zfill(32), "partitions": [[0, 1]]}}
    warm = cluster.connect({})
    monkeypatch.setattr(warm, "bootstrap_hint", lambda: {"topics": topics})

    class Clients:
        def connect(self, config: Any, hint: Any, *, fresh: bool = False) -> Any:
            asked.append(fresh)
            assert config["cluster.id.expected"] == "cluster-A"
            return cluster.connect({}) if fresh else warm

        def release(self, client: Any) -> None:
            client.assign([])

    monkeypatch.setattr("odradek.spark.tasks.task.process_clients", Clients)
    wanted = KafkaOffsetRange(P0, 5, 9)
    sent = KafkaInputPartition(wanted, "cluster-A", ID_1, None)
    batches: list[Any] = list(source().reader(VALUE).read(sent))
    found = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert found == [b"5", b"6", b"7", b"8"]
    assert any(asked) is fresh
