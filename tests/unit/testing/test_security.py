"""The security settings that a cluster for tests passes to its brokers and clients."""

from __future__ import annotations

import base64
import json
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.common.types import Address
from odradek.testing import LocalCluster
from odradek.testing.brokers.broker import JavaSetup, LocalBroker
from odradek.testing.brokers.broker_set import BrokerSet, Timeline
from odradek.testing.brokers.process import Child, Exit, Keeper
from odradek.testing.brokers.security import (
    MECHANISMS,
    Security,
    properties_text,
    token_function,
    unsecured_token,
)

INNER = Address("127.3.2.10", 3)


def broker(tmp_path: Path, inner: Address | None = INNER) -> LocalBroker:
    return LocalBroker(0, tmp_path, Address("127.3.2.10", 1), Address("127.3.2.10", 2), inner)


def written(security: Security, tmp_path: Path) -> dict[str, str]:
    """Return the properties that are written for a broker."""
    security.prepare(tmp_path)
    one = broker(tmp_path, INNER if security.secured else None)
    security.certify(one)
    one.write_properties(
        [one], security.broker_lines(one), security.protocol, security.among_brokers
    )
    lines = (line.partition("=") for line in one.properties.read_text().splitlines())
    return {name: value for name, _, value in lines}


def test_a_plaintext_cluster_has_two_listeners_and_no_certificates(tmp_path: Path) -> None:
    found = written(Security("PLAINTEXT"), tmp_path)
    assert found["listeners"] == "PLAINTEXT://127.3.2.10:1,CONTROLLER://127.3.2.10:2"
    assert found["advertised.listeners"] == "PLAINTEXT://127.3.2.10:1"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert not any(name.startswith(("listener.name", "inter", "super")) for name in found)
    assert [path.name for path in tmp_path.iterdir()] == ["server.properties"]


def test_broker_configurations_are_readable_by_the_user_only(tmp_path: Path) -> None:
    security = Security("SASL_PLAINTEXT", ["PLAIN"], {"alice": "a-secret"})
    path = broker(tmp_path).properties
    path.write_text("older, and open to all")
    path.chmod(0o644)
    for _ in range(2):
        assert any("a-secret" in value for value in written(security, tmp_path).values())
        assert path.stat().st_mode & 0o777 == 0o600
        path.unlink()


def test_brokers_communicate_with_each_other_in_plaintext(tmp_path: Path) -> None:
    security = Security("SASL_SSL", ["PLAIN", "SCRAM-SHA-256"], {"alice": "a-secret"})
    found = written(security, tmp_path)
    assert found["listener.security.protocol.map"] == (
        "CLIENT:SASL_SSL,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    assert found["inter.broker.listener.name"] == "INNER"
    assert found["advertised.listeners"] == "CLIENT://127.3.2.10:1,INNER://127.3.2.10:3"
    assert found["listener.name.client.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256"
    assert found["listener.name.client.plain.sasl.jaas.config"].endswith(
        'PlainLoginModule required user_alice="a-secret";'
    )
    assert "super.users" not in found
    assert security.inner_login is None
    assert security.inner_java() == {}
    assert security.format_arguments() == [
        "--add-scram", "SCRAM-SHA-256=[name=alice,password=a-secret]",
    ]  # fmt: skip
    assert Path(found["listener.name.client.ssl.keystore.location"]).is_file()


def test_with_acls_the_inner_listeners_require_a_login(tmp_path: Path) -> None:
    """Through a plaintext listener, every local user would be a super user."""
    securities = [
        Security("SASL_SSL", ["PLAIN"], {"alice": "a-secret"}, acls=True) for _ in range(2)
    ]
    logins = [security.inner_login for security in securities]
    assert logins[0] != logins[1]  # each cluster generates its passwords
    found = written(securities[0], tmp_path)
    assert found["listener.security.protocol.map"] == (
        "CLIENT:SASL_SSL,INNER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    )
    assert logins[0] is not None
    name, word = logins[0]
    assert found["super.users"] == f"User:{name}"
    for listener in ("inner", "controller"):
        assert found[f"listener.name.{listener}.sasl.enabled.mechanisms"] == "PLAIN"
        said = found[f"listener.name.{listener}.plain.sasl.jaas.config"]
        assert said.endswith(f'username={name} password="{word}" user_{name}="{word}";')
    assert found["sasl.mechanism.inter.broker.protocol"] == "PLAIN"
    assert found["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert word in securities[0].inner_java()["sasl.jaas.config"]
    assert logins[0][0] not in str(securities[0].users)


def test_arguments_of_tools_are_in_a_private_file(tmp_path: Path) -> None:
    java = JavaSetup(tmp_path, tmp_path / "jars", tmp_path)
    argument = r'[name=a,password="quoted \ word"]'
    command = java.command("some.Main", ["--add-scram", argument], tmp_path / "log4j")
    hidden = java.hidden(command, tmp_path / "tool-0.args")
    assert hidden == [command[0], f"@{tmp_path / 'tool-0.args'}"]
    assert stat.S_IMODE((tmp_path / "tool-0.args").stat().st_mode) == 0o600
    lines = (tmp_path / "tool-0.args").read_text().splitlines()
    # In the format of Java's argument files: a quoted word per line, with backslashes escaped.
    assert lines[-2:] == ['"--add-scram"', r'"[name=a,password=\"quoted \\ word\"]"']
    assert len(lines) == len(command) - 1


class ShownKeeper:
    """Starts no process; records the command line that `ps` would show, and the argument file."""

    pid = 1

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.meant = ""

    def spawn(self, command: Sequence[str], *, stdout: Path, stderr: Path, **_: object) -> Child:
        self.shown += command
        self.meant += Path(command[1].removeprefix("@")).read_text()
        stdout.write_text("done")
        stderr.touch()
        child = Child(1, stdout, exit=Exit(0, 0.0, 0.0))
        child.ended.set()
        return child


def test_ps_shows_no_password_while_a_tool_runs(tmp_path: Path) -> None:
    security = Security("SASL_PLAINTEXT", ["SCRAM-SHA-256"], {"alice": "a-secret"})
    keeper = ShownKeeper()
    brokers = BrokerSet(
        keeper=cast("Keeper", keeper),
        java=JavaSetup(tmp_path, tmp_path / "jars", tmp_path),
        directory=tmp_path / "cluster",
        count=1,
        config={},
        timeline=Timeline(),
        security=security,
    )
    assert brokers.run_tool("kafka.tools.StorageTool", security.format_arguments()) == "done"
    assert "password=a-secret" in keeper.meant
    assert not any("a-secret" in word for word in keeper.shown)
    assert list(brokers.directory.glob("*.args")) == []


def test_settings_are_in_the_format_of_each_client(tmp_path: Path) -> None:
    security = Security("SASL_SSL", MECHANISMS[:4], {"alice": "a-secret"}, "required")
    security.prepare(tmp_path)
    java = security.java(mechanism="SCRAM-SHA-256", stores="PKCS12")
    assert java["sasl.jaas.config"].endswith(
        'ScramLoginModule required username="alice" password="a-secret";'
    )
    assert java["ssl.keystore.location"].endswith("alice.p12")
    assert java["ssl.truststore.type"] == "PKCS12"
    confluent = security.librdkafka("alice", "PLAIN", "wrong")
    assert (confluent["sasl.username"], confluent["sasl.password"]) == ("alice", "wrong")
    assert Path(confluent["ssl.key.location"]).is_file()
    ours = security.ours(mechanism="OAUTHBEARER")
    assert "sasl.jaas.config" not in ours
    token, ends = ours["sasl.oauthbearer.token.provider"]()
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["sub"] == "alice"
    assert ends > time.time()
    assert security.java("bob", "PLAIN")["sasl.jaas.config"].endswith('password="";')
    for words in (Security("PLAINTEXT").java(), Security("PLAINTEXT").librdkafka()):
        assert words == {}


def test_tokens_may_expire_soon() -> None:
    _, ends = unsecured_token("alice", lifetime=-5)
    assert ends < time.time()
    assert token_function("alice", 9)()[1] == pytest.approx(time.time() + 9, abs=2)


def test_a_changed_password_applies_to_brokers_and_clients() -> None:
    security = Security("SASL_PLAINTEXT", ["SCRAM-SHA-256", "PLAIN"], {"alice": "first"})
    assert security.change_password("alice", "second") == ["SCRAM-SHA-256"]
    assert security.librdkafka()["sasl.password"] == "second"
    with pytest.raises(KeyError):
        security.change_password("bob", "second")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"security": "TLS"}, "can't be 'TLS'"),
        ({"security": "SSL", "mechanisms": ["PLAIN"]}, "doesn't allow mechanisms"),
        ({"users": {"alice": "x"}}, "doesn't allow mechanisms or users"),
        ({"security": "SASL_SSL", "mechanisms": ["DIGEST-MD5"]}, "unknown mechanism DIGEST-MD5"),
        ({"security": "SASL_PLAINTEXT", "mutual_tls": "required"}, "mutual_tls needs"),
        ({"security": "SSL", "acls": True}, "acls=True needs users"),
        ({"security": "SSL", "mutual_tls": "requested", "acls": True}, "acls=True needs users"),
        ({"security": "SASL_SSL", "users": {"alice": "a,b"}}, "names and passwords"),
        ({"security": "SASL_SSL", "users": {"alice": ""}}, "names and passwords"),
    ],
)
def test_conflicting_options_are_refused_before_the_start(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        LocalCluster(**options)


def test_a_properties_file_keeps_backslashes() -> None:
    assert properties_text({"a": r'"x\"y"'}) == 'a="x\\\\"y"\n'
