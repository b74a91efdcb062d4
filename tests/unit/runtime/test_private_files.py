"""R-IN-5: test that files are written safely, and warnings of keys that others can read."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.common.events import Event
from odradek.runtime import private_files
from odradek.runtime.events.events_dir import EventFile
from odradek.runtime.private_files import UnsafeFileError, append_privately, warn_of_readers


def _link(path: Path) -> str:
    path.symlink_to(path.with_name("victim"))
    path.with_name("victim").write_text("before")
    return "symbolic link"


def _dangling_link(path: Path) -> str:
    path.symlink_to(path.with_name("not-there"))
    return "symbolic link"


def _hard_link(path: Path) -> str:
    path.with_name("victim").touch(0o600)
    os.link(path.with_name("victim"), path)
    return "second hard link"


def _pipe(path: Path) -> str:
    os.mkfifo(path, 0o600)
    return "isn't a regular file"


def _wide(path: Path) -> str:
    path.touch()
    path.chmod(0o644)
    return "chmod 600"


TRAPS = [_link, _dangling_link, _hard_link, _pipe, _wide]


@pytest.mark.parametrize("trap", TRAPS)
def test_an_unsafe_file_is_rejected(tmp_path: Path, trap: Callable[[Path], str]) -> None:
    path = tmp_path / "file"
    why = trap(path)
    with pytest.raises(UnsafeFileError, match=why):
        append_privately(path)
    assert not (tmp_path / "not-there").exists()


@pytest.mark.parametrize("trap", TRAPS)
def test_events_are_not_written_to_an_unsafe_file_and_one_warning_is_logged(
    tmp_path: Path, trap: Callable[[Path], str], caplog: pytest.LogCaptureFixture
) -> None:
    events = EventFile(tmp_path, "c")
    why = trap(events.path)
    with caplog.at_level(logging.WARNING, "odradek"):
        events(Event(0.0, "closed"))
        events(Event(0.0, "closed"))
    assert [why in record.getMessage() for record in caplog.records] == [True]  # one warning
    victim = tmp_path / "victim"
    assert not victim.exists() or victim.read_text() in ("", "before")
    assert not (tmp_path / "not-there").exists()


def test_nothing_is_written_to_a_pipe_with_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(UnsafeFileError, match="isn't a regular file"):
        append_privately(path)
    assert os.read(reader, 10) == b""
    os.close(reader)


def test_only_the_user_can_read_created_files_and_folders(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        events = EventFile(tmp_path / "events", "c")
        events(Event(0.0, "closed"))
    finally:
        os.umask(before)
    events.close()
    assert stat.S_IMODE(events.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(events.path.parent.stat().st_mode) == 0o700


def test_a_file_of_another_user_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    os.close(append_privately(path))
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        append_privately(path)


@pytest.mark.parametrize(("mode", "who"), [(0o600, ""), (0o640, "its group"), (0o644, "everybody")])
def test_a_private_key_that_others_can_read_causes_one_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    who: str,
) -> None:
    monkeypatch.setattr(private_files, "_told", set())
    path = tmp_path / "key.pem"
    warn_of_readers("ssl.key.location", path)  # a missing file causes no warning
    path.touch()
    path.chmod(mode)
    (tmp_path / "link.pem").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for name in (path, path, "key.pem", "./key.pem", tmp_path / "link.pem"):
        warn_of_readers("ssl.key.location", name)
    assert len(caplog.records) == (mode != 0o600)
    if who:
        assert f"key.location: {path} contains a private key, but {who} can read it" in caplog.text
