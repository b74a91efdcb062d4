"""Streaming queries on a cluster that stays where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from odradek.testing import LocalCluster

Stream = Callable[[str], Any]


def rows(start: int, stop: int) -> list[tuple[None, bytes]]:
    return [(None, f"{n}".encode()) for n in range(start, stop)]


def test_a_query_follows_a_topic(stream: Stream, topics: Any) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 100))
    job = stream(topic)
    query = job.start({"processingTime": "200 milliseconds"}, startingOffsets="earliest")
    job.wait_for(100, query)
    topics.fill(topic, rows(100, 250))
    job.wait_for(250, query)
    query.stop()
    assert job.values() == list(range(250))
    progress = query.lastProgress["sources"][0]
    assert json.loads(progress["latestOffset"])["o"] == {topic: {"0": 125, "1": 125}}


def test_available_now_reads_what_is_there_in_batches_of_the_limit(
    stream: Stream, topics: Any, cluster: LocalCluster
) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 100))
    job = stream(topic)
    query = job.run(startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert job.values() == list(range(100))
    sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sizes == [40, 40, 20]
    journal = job.offsets()
    assert journal[0]["from"] == {topic: {"0": 0, "1": 0}}
    assert journal[0]["cluster"] == cluster.cluster_id
    assert journal[-1]["o"] == {topic: {"0": 50, "1": 50}}
    topics.fill(topic, rows(100, 130))
    job.run()  # goes on from the checkpoint, whatever startingOffsets says now
    assert job.values() == list(range(130))


def test_tasks_ask_for_no_metadata(stream: Stream, topics: Any, tmp_path: Path) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 90))
    events = tmp_path / "events"
    job = stream(topic)
    job.run(startingOffsets="earliest", maxOffsetsPerTrigger="30", eventsDir=str(events))
    assert job.values() == list(range(90))
    kinds = [
        {json.loads(line)["kind"] for line in file.read_text().splitlines()}
        for file in events.iterdir()
    ]
    tasks = [found for found in kinds if "first_record" in found]
    assert tasks
    assert not any("metadata_request" in found for found in tasks)
    assert sum("metadata_request" in found for found in kinds) == 1  # the driver's


def test_latest_is_durable_before_the_first_record(stream: Stream, topics: Any) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 10))
    job = stream(topic)
    job.run(startingOffsets="latest")
    topics.fill(topic, rows(10, 15))  # while no query runs
    job.run(startingOffsets="latest")
    assert job.values() == list(range(10, 15))


def test_trigger_once_reads_all_that_is_there(stream: Stream, topics: Any) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 50))
    job = stream(topic)
    job.run({"once": True}, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    assert job.values() == list(range(50))


def test_partitions_that_join_are_read_from_their_beginning(stream: Stream, topics: Any) -> None:
    topic = topics.create(partitions=1)
    topics.fill(topic, rows(0, 10), partitions=1)
    job = stream(topic)
    job.run(startingOffsets="latest")
    topics.grow(topic, 2)
    topics.fill(topic, rows(10, 30))
    job.run()
    assert job.values() == list(range(10, 30))
    assert job.offsets()[-1]["from"] == {topic: {"1": 0}}


def test_a_topic_made_anew_fails_with_both_ids_or_is_read_anew(stream: Stream, topics: Any) -> None:
    topic = topics.create()
    topics.fill(topic, rows(0, 20))
    job = stream(topic)
    job.run(startingOffsets="earliest")
    before = job.offsets()[-1]["id"][topic]
    topics.delete(topic)
    topics.create(name=topic)
    topics.fill(topic, rows(20, 90))  # more records than before: offsets alone don't tell
    with pytest.raises(StreamingQueryException) as caught:
        job.run()
    assert before in str(caught.value)
    assert f"topic {topic} was deleted and made anew" in str(caught.value)
    job.run(failOnDataLoss="false")
    assert job.values() == list(range(90))
    assert job.offsets()[-1]["id"][topic] != before
    assert job.offsets()[-1]["id"][topic] in str(caught.value)


def test_ending_offsets_are_refused_for_a_stream(stream: Stream, topics: Any) -> None:
    with pytest.raises(Exception, match="endingOffsets isn't for a stream query"):
        stream(topics.create()).run(endingOffsets="latest")
