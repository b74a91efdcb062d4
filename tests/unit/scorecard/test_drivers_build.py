"""Drivers in Go and Java are built once; if that fails, the client's column has the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import building
from benchmarks.scorecard.drivers import build

from odradek.testing import jars
from odradek.testing.errors import JavaNotFoundError


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(building, "cache_directory", lambda: tmp_path)
    return tmp_path / "scorecard"


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_if_go_is_missing_the_column_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "find_go", lambda: None)
    built = build.go_command("franz-go")
    assert built.command is None
    assert "Go isn't on PATH" in built.reason


def test_a_failed_go_build_reports_the_error_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    go = program(tmp_path / "go", 'test "$1" = version && exit 0; echo no such module >&2; exit 1')
    monkeypatch.setattr(building, "find_go", lambda: go)
    built = build.go_command("sarama")
    assert built.command is None
    assert "no such module" in built.reason
    assert [path.name for path in cache.iterdir()] == ["go.lock"]


def test_an_existing_build_of_a_driver_is_reused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    calls = tmp_path / "calls"
    go = program(tmp_path / "go", f'test "$1" = version && exit 0; echo build >> {calls}')
    monkeypatch.setattr(building, "find_go", lambda: go)
    first, second = build.go_command("franz-go"), build.go_command("sarama")
    assert calls.read_text() == "build\n"
    assert first.command is not None
    assert second.command is not None
    assert first.command[0] == second.command[0]
    assert Path(first.command[0]).is_relative_to(cache)
    assert (first.command[1:], second.command[1:]) == (["franz-go"], ["sarama"])


def test_an_unknown_library_name_for_the_go_driver_is_rejected() -> None:
    with pytest.raises(ValueError, match="franz-go, sarama"):
        build.go_command("confluent-kafka-go")


def test_a_java_without_a_compiler_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "jre" / "bin" / "java", "echo java.base@17")
    monkeypatch.setattr(building, "java_home", lambda: tmp_path / "jre")
    monkeypatch.setattr(jars, "fetch", lambda _: tmp_path)
    built = build.java_command()
    assert built.command is None
    assert "jdk.compiler" in built.reason


def test_if_java_is_missing_the_column_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise JavaNotFoundError("no Java anywhere")

    monkeypatch.setattr(building, "java_home", missing)
    assert build.java_command() == building.Built(None, "no Java anywhere")
