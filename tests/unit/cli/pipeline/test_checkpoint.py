"""Test how a checkpoint is read without Spark, on this machine and on remote storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.pipeline.checkpoint import Checkpoint, local_path, look


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/var/state", "/var/state"),
        ("state", "state"),
        ("file:///var/state", "/var/state"),
        ("file:/var/state", "/var/state"),
        ("FILE://localhost/var/state", "/var/state"),
        ("file://elsewhere/var/state", None),
        ("s3a://bucket/state", None),
        ("hdfs:/state", None),
    ],
)
def test_checkpoint_paths_on_this_machine_are_recognized(place: str, path: str | None) -> None:
    assert local_path(place) == (None if path is None else Path(path))


def written(folder: Path, name: str, number: int) -> None:
    (folder / name).mkdir(exist_ok=True)
    ends = f'{{"v":1,"o":{{"t":{{"0":{number * 10}}}}}}}'
    (folder / name / str(number)).write_text(f"v1\n{{}}\n{ends}\n")
    (folder / name / f".{number}.crc").write_bytes(b"")


def test_the_last_started_and_committed_batches_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    place = f"file://{tmp_path}"
    assert look(place) == Checkpoint()
    assert look(place).is_new
    written(tmp_path, "offsets", 0)
    assert (look(place).is_new, look(place).repeats) == (False, 0)
    for number in (9, 10):
        written(tmp_path, "offsets", number)
        written(tmp_path, "commits", number)
    assert look(place) == Checkpoint(10, 10, {"t-0": 100})
    assert look(place).repeats is None
    written(tmp_path, "offsets", 11)
    assert (look(place).repeats, look(place).positions) == (11, {"t-0": 100})


def test_a_remote_checkpoint_counts_neither_as_new_nor_as_existing() -> None:
    found = look("s3a://bucket/state")
    assert (found.seen, found.is_new, found.repeats) == (False, False, None)
