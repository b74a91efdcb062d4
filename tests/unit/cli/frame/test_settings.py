"""Test the precedence of connection settings: flags, then the environment, then a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.cli.console.properties import UsageError
from odradek.cli.frame.settings import Flags, settings
from odradek.common.secret import Secret

CONFIG = """\
# clusters
[profile.dev]
bootstrap.servers = "dev:9092"
client.id = 'mine'  # a comment

[profile.prod]
"bootstrap.servers" = ["one:9092", "two:9092"]
sasl.username = "jo"
sasl.password = "geheim"
sasl.mechanism = "PLAIN"
security.protocol = "SASL_SSL"
linger.ms = 5

[profile.typo]
bootstrap.servers = "dev:9092"
request.timout.ms = 5

[profile.soon]
bootstrap.servers = "dev:9092"
default.api.timeout.ms = "soon"

[profile.date]
bootstrap.servers = "dev:9092"
client.id = 2026-01-01

[other]
profile = 1
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    place = tmp_path / "odradek" / "config.toml"
    place.parent.mkdir()
    place.write_text(CONFIG)
    place.chmod(0o600)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def refused(flags: Flags, environment: dict[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        settings(flags, environment)
    return str(caught.value)


def test_flags_override_the_environment_which_overrides_a_profile(
    home: dict[str, str], tmp_path: Path
) -> None:
    def servers(environment: dict[str, str], **flags: Any) -> tuple[str, Any]:
        found = settings(Flags(**flags), home | environment)
        return found.servers, found.given.get("client.id", found.given.get("client_id"))

    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=of-file\n")
    by_profile = {"ODRADEK_PROFILE": "dev"}
    by_file = by_profile | {"ODRADEK_COMMAND_CONFIG": str(file)}
    by_both = by_file | {"ODRADEK_BOOTSTRAP_SERVER": "env:1"}
    assert servers(by_profile) == ("dev:9092", "mine")
    assert servers(by_file) == ("file:1", "of-file")
    assert servers(by_both) == ("env:1", "of-file")
    assert servers(by_both, bootstrap_server="flag:1") == ("flag:1", "of-file")
    assert servers(by_both, command_property=("client_id=word",)) == ("env:1", "word")
    assert servers({"ODRADEK_BOOTSTRAP_SERVER": "env:1"}, command_config=file)[0] == "file:1"


def test_a_profile_named_by_a_flag_replaces_all_settings_of_the_environment(
    home: dict[str, str], tmp_path: Path
) -> None:
    """Otherwise the production password might be sent to the address in an environment variable."""
    environment = home | {"ODRADEK_BOOTSTRAP_SERVER": "env:1", "ODRADEK_PROFILE": "prod"}
    found = settings(Flags(profile="dev"), environment)
    assert found.servers == "dev:9092"
    assert "sasl.password" not in found.given


def test_a_profile_may_have_lists_secrets_and_options_of_other_clients(
    home: dict[str, str],
) -> None:
    found = settings(Flags(profile="prod"), home)
    assert found.servers == "one:9092,two:9092"
    assert isinstance(found.given["sasl.password"], Secret)
    assert "linger.ms" not in found.given  # only producers have this option
    assert found.warning == ""


def test_a_flag_replaces_a_profiles_setting_under_another_clients_name(
    home: dict[str, str],
) -> None:
    words = ("sasl.mechanisms=SCRAM-SHA-512", "timeout=1")
    found = settings(Flags(profile="prod", command_property=words[:1]), home)
    assert found.given["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert "sasl.mechanism" not in found.given
    assert "unknown option 'timeout'" in refused(
        Flags(profile="dev", command_property=words[1:]), home
    )


def test_an_error_names_the_file_and_the_line(home: dict[str, str]) -> None:
    path = str(Path(home["XDG_CONFIG_HOME"]) / "odradek" / "config.toml")
    for profile, line, text in (
        ("typo", 16, "unknown option 'request.timout.ms'"),
        ("soon", 20, "default.api.timeout.ms must be a whole number"),
        ("date", 24, "client.id must be a string"),
    ):
        said = refused(Flags(profile=profile), home)
        assert said.startswith(f"{path}, line {line}: {text}"), said
    assert refused(Flags(profile="nope"), home) == (
        f"{path} has no profile 'nope'; it has dev, prod, typo, soon, date"
    )
    # If a flag replaces the file's setting, an error doesn't name the file.
    said = refused(Flags(profile="dev", command_property=("client.id=",)), home)
    assert path not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profile.dev\n", "is not valid TOML (strings need quotes): "),
        ("profile = 1\n", "profile must be a table"),
        ("[profile]\ndev = 1\n", "line 2: a profile must be a table"),
        ("", "has no profile 'dev'; it has none yet: add a table [profile.dev]"),
        (None, "doesn't exist; create it with a table [profile.dev]"),
        (b"\xff", "isn't UTF-8 text"),
    ],
)
def test_an_unusable_configuration_file_is_rejected_with_the_reason(
    tmp_path: Path, text: str | bytes | None, said: str
) -> None:
    place = tmp_path / "odradek" / "config.toml"
    place.parent.mkdir()
    if text is not None:
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    problem = refused(Flags(profile="dev"), {"XDG_CONFIG_HOME": str(tmp_path)})
    assert problem.startswith(str(place))
    assert said in problem


def test_a_file_with_secrets_that_others_can_read_causes_a_warning(home: dict[str, str]) -> None:
    place = Path(home["XDG_CONFIG_HOME"]) / "odradek" / "config.toml"
    place.chmod(0o644)
    warning = settings(Flags(profile="prod"), home).warning
    assert warning.startswith(f"warning: {place} contains secrets (sasl.password)")
    assert warning.endswith(f"chmod 600 {place}")
    assert "geheim" not in warning
    assert settings(Flags(profile="dev"), home).warning == ""


@pytest.mark.parametrize("name", ["bootstrap_server", "profile"])
def test_an_empty_flag_is_an_error(home: dict[str, str], name: str) -> None:
    """With `--bootstrap-server "$UNSET"` the command would use the environment's cluster."""
    environment = {**home, "ODRADEK_BOOTSTRAP_SERVER": "prod:9092", "ODRADEK_PROFILE": "prod"}
    assert "is empty" in refused(Flags(**{name: ""}), environment)  # type: ignore[arg-type]


def test_the_error_for_a_missing_bootstrap_address_names_the_flag() -> None:
    assert "use --bootstrap-server host:port" in refused(Flags(), {})


def test_the_timeout_comes_from_the_flag_or_else_from_the_clients_default() -> None:
    environment = {"ODRADEK_BOOTSTRAP_SERVER": "env:1"}
    assert settings(Flags(), environment).timeout == 60.0
    assert settings(Flags(timeout=0.0), environment).timeout == 0.0
    words = ("default.api.timeout.ms=1500",)
    assert settings(Flags(command_property=words), environment).timeout == 1.5
