"""`odradek events tables`: wrong use is said before Spark is started."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from odradek.cli import spark_session
from odradek.cli.events import app


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tables"], "either a folder or"),
        (["tables", "here", "--topic", "t"], "either a folder or"),
        (["tables", "--topic", "t"], "kafka.bootstrap.servers"),
        (["tables", "--topic", "t", "--option", "secret-without-equals"], "NAME=VALUE"),
        (["tables", "not-there"], "no folder"),
    ],
)
def test_wrong_use(words: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delattr(spark_session, "_started")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert says in result.stderr
