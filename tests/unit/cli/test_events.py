"""Test that `odradek events tables` rejects wrong arguments before it starts Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli.events import tables as events
from odradek.cli.events.tables import app
from odradek.cli.frame import spark_session


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tables"], "either a folder or"),
        (["tables", "here", "--topic", "t"], "either a folder or"),
        (["tables", "--topic", "t"], "--bootstrap-server host:port"),
        (["tables", "--topic", "t", "--option", "secret-without-equals"], "NAME=VALUE"),
        (["tables", "not-there"], "folder not-there doesn't exist"),
        (["tables", "--topic", "t", "--picture", "fleet.png"], "must end with .svg"),
        (["tables", "--topic", "t", "--command-config", "not-there"], "can't be read"),
    ],
)
def test_wrong_arguments_are_rejected_before_spark_starts(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delattr(spark_session, "_started")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_cluster_settings_are_read_from_a_properties_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_profile_can_name_the_cluster_of_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "odradek" / "config.toml"
    place.parent.mkdir()
    place.write_text(
        '[profile.here]\nbootstrap.servers = ["a:1", "b:2"]\n'
        'sasl.password = "geheim"\nlinger.ms = 5\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    given: list[Any] = []

    def made(*words: Any) -> dict[str, Any]:
        given[:] = words
        return {"events": 1}

    monkeypatch.setattr(events, "_made", made)
    for words, environment in ((["--profile", "here"], ""), ([], "here")):
        monkeypatch.setenv("ODRADEK_PROFILE", environment)
        result = CliRunner().invoke(app, ["tables", "--topic", "t", "--json", *words])
        assert result.exit_code == 0, result.output
        assert given[2] == {"kafka.bootstrap.servers": "a:1,b:2", "kafka.sasl.password": "geheim"}
        assert "chmod 600" in result.stderr
