"""`odradek events tables`: wrong use is said before Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli import events, spark_session
from odradek.cli.events import app


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tables"], "either a folder or"),
        (["tables", "here", "--topic", "t"], "either a folder or"),
        (["tables", "--topic", "t"], "kafka.bootstrap.servers"),
        (["tables", "--topic", "t", "--option", "secret-without-equals"], "NAME=VALUE"),
        (["tables", "not-there"], "no folder"),
        (["tables", "--topic", "t", "--command-config", "not-there"], "can't be read"),
    ],
)
def test_wrong_use(words: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delattr(spark_session, "_started")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_passwords_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nsasl.password=hunter2\nlinger.ms=5\n")
    given: list[Any] = []

    def made(*words: Any) -> dict[str, Any]:
        given.extend(words)
        return {"events": 0}

    monkeypatch.setattr(events, "_made", made)
    words = ["tables", "--topic", "t", "--command-config", str(file), "--json"]
    result = CliRunner().invoke(app, [*words, "--option", "kafka.bootstrap.servers=b:2"])
    assert (result.exit_code, result.stdout) == (1, '{"events": 0}\n')
    assert given[2] == {"kafka.bootstrap.servers": "b:2", "kafka.sasl.password": "hunter2"}
