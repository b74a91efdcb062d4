"""Test that only one process at a time writes to a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.pipeline.lock import locked, resolved
from odradek.common.errors import IllegalStateError

HOLD = """
import sys
from odradek.cli.pipeline.lock import locked
with locked([sys.argv[1]]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_with_the_same_checkpoint_is_rejected_until_the_first_ends(
    tmp_path: Path,
) -> None:
    place = str(tmp_path / "checkpoints" / "out")
    command = [sys.executable, "-c", HOLD, place]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == b"held\n"
        with (
            pytest.raises(IllegalStateError, match=f"another process is .*{place}"),
            locked([place]),
        ):
            pass
        first.kill()
        first.wait()
    with locked([place]):
        assert list(Path(place).iterdir()) == []  # the lock is no file in the checkpoint's folder


def test_a_checkpoint_that_cannot_be_locked_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It isn't an error: if the path can't be used, Spark reports that."""
    (tmp_path / "file").touch()
    with locked([str(tmp_path / "file" / "checkpoint")]):
        pass
    assert "can't be locked" in caplog.text


def test_different_spellings_of_a_checkpoint_path_are_equal(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    wanted = str((tmp_path / "there").resolve())
    for place in (f"{tmp_path}/there/", f"{tmp_path}/x/../there", f"{tmp_path}/link"):
        assert resolved(place) == resolved(f"file://{place}") == wanted
    assert resolved("s3a://bucket/there/") == resolved("s3a://bucket/there")


def test_checkpoints_on_other_machines_are_not_locked() -> None:
    with locked(["s3a://bucket/there"]), locked(["s3a://bucket/there"]):
        pass
