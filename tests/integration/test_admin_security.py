"""Test ACLs, passwords and delegation tokens with an admin client and a secured broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.admin_commands import as_json, create_group_and_transactional_id, run, walk
from tests.integration.test_missing_permissions import OPTIONS

import odradek as o
from odradek.common.secret import Secret
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

PATIENCE = 60.0


@pytest.fixture(scope="module")
def guarded(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared(OPTIONS)


@pytest.fixture
def admin(guarded: LocalCluster) -> Iterator[o.Admin]:
    """Return an admin client of a superuser."""
    with o.Admin(guarded.inner_config(), default_api_timeout_ms=30_000) as made:
        yield made


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition: the broker applies the controller's changes a moment later."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_acls_are_created_described_and_deleted(
    guarded: LocalCluster, admin: o.Admin, topic: str
) -> None:
    read = o.admin.AclBinding("TOPIC", topic, "User:bob", "READ")
    prefix = o.admin.AclBinding(
        "TOPIC", topic[:3], "User:dave", "WRITE", "DENY", "PREFIXED", "10.0.0.1"
    )
    cluster = o.admin.AclBinding("CLUSTER", "kafka-cluster", "User:dave", "DESCRIBE")
    with pytest.raises(o.errors.InvalidRequestError, match="of-no-type") as refused:
        admin.create_acls([read, o.admin.AclBinding("TOPIC", topic, "of-no-type", "READ"), prefix])
    assert list(refused.value.results) == [read, prefix]
    admin.create_acls([cluster, read])
    daves = o.admin.AclBindingFilter(principal="User:dave")
    until(lambda: admin.describe_acls(daves) == sorted([cluster, prefix]))
    concerning = o.admin.AclBindingFilter("TOPIC", topic, pattern_type="MATCH")
    assert admin.describe_acls(concerning) == sorted([prefix, read])
    assert set(admin.describe_acls()) >= {read, prefix, cluster}
    gone = admin.delete_acls(
        [daves, o.admin.AclBindingFilter("TOPIC", topic), o.admin.AclBindingFilter("USER")]
    )
    assert list(gone.values()) == [sorted([cluster, prefix]), [read], []]
    until(lambda: admin.describe_acls(daves) == [])
    with o.Admin(guarded.client_config("bob")) as bob:
        with pytest.raises(
            o.errors.ClusterAuthorizationError, match="'bob' needs ALTER on the cluster"
        ):
            bob.create_acls([read], timeout=PATIENCE)
        with pytest.raises(
            o.errors.ClusterAuthorizationError, match="needs DESCRIBE on the cluster"
        ):
            bob.describe_acls(timeout=PATIENCE)


def test_an_authorization_error_names_operation_and_resource(
    guarded: LocalCluster, admin: o.Admin, topic: str
) -> None:
    with o.Admin(guarded.client_config("bob"), default_api_timeout_ms=30_000) as bob:
        for call, right in (
            (lambda: bob.create_partitions({topic: 4}), f"ALTER on topic '{topic}'"),
            (lambda: bob.describe_consumer_groups(topic), f"DESCRIBE on group '{topic}'"),
            (lambda: bob.delete_groups(topic), f"DESCRIBE on group '{topic}'"),
            (
                lambda: bob.describe_configs([o.admin.ConfigResource("TOPIC", topic)]),
                f"DESCRIBE_CONFIGS on topic '{topic}'",
            ),
            (
                lambda: bob.describe_transactions(topic),
                f"DESCRIBE on transactional id '{topic}'",
            ),
            (lambda: bob.describe_log_dirs(), "DESCRIBE on the cluster"),
            (lambda: bob.list_partition_reassignments(), "DESCRIBE on the cluster"),
        ):
            with pytest.raises(o.AuthorizationError, match=f"'bob' needs {right}: add an ACL"):
                call()
        assert topic not in bob.list_topics()


def test_scram_passwords_are_created_described_used_and_deleted(
    guarded: LocalCluster, admin: o.Admin, topic: str
) -> None:
    mechanism, password = "SCRAM-SHA-256", f"secret of {topic}"
    admin.alter_user_scram_credentials(
        [
            o.admin.UserScramCredentialUpsertion(topic, mechanism, password, 8192),
            o.admin.UserScramCredentialUpsertion(topic, "SCRAM-SHA-512", password),
        ]
    )
    until(lambda: topic in admin.describe_user_scram_credentials())
    assert admin.describe_user_scram_credentials([topic])[topic] == (
        o.admin.ScramCredentialInfo(mechanism, 8192),
        o.admin.ScramCredentialInfo("SCRAM-SHA-512", 4096),
    )
    new = {**guarded.client_config("bob"), "sasl.username": topic, "sasl.password": password}
    del new["sasl.jaas.config"]
    with o.Admin(new) as somebody:
        assert somebody.cluster_id(PATIENCE) == guarded.cluster_id
    with pytest.raises(o.errors.ResourceNotFoundError, match="user nobody") as refused:
        admin.describe_user_scram_credentials(["nobody", "bob"])
    assert list(refused.value.results) == ["bob"]
    gone = o.admin.UserScramCredentialDeletion(topic, "SCRAM-SHA-512")
    with pytest.raises(o.errors.ResourceNotFoundError, match="user nobody") as not_there:
        admin.alter_user_scram_credentials(
            [gone, o.admin.UserScramCredentialDeletion("nobody", mechanism)]
        )
    assert list(not_there.value.results) == [topic]
    until(lambda: len(admin.describe_user_scram_credentials(topic)[topic]) == 1)
    admin.alter_user_scram_credentials([o.admin.UserScramCredentialDeletion(topic, mechanism)])


def test_delegation_tokens_are_created_used_renewed_and_expired(
    guarded: LocalCluster, admin: o.Admin
) -> None:
    with o.Admin(guarded.client_config("bob"), default_api_timeout_ms=30_000) as bob:
        token = bob.create_delegation_token("User:carol", max_lifetime=3600)
        assert (token.owner, token.requester) == ("User:bob", "User:bob")
        assert token.renewers == ("User:carol",)
        assert token.max_ms - token.issue_ms == 3_600_000
        until(lambda: bob.describe_delegation_tokens() == [token])
        assert bob.describe_delegation_tokens("User:bob") == [token]
        assert bob.renew_delegation_token(token.hmac, period=60) <= token.max_ms
        as_bob = {
            **guarded.client_config("bob"),
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
            ),
        }
        with o.Admin(as_bob) as by_token:
            assert by_token.cluster_id(PATIENCE) == guarded.cluster_id
            # A client that authenticated with a token can't create another one.
            with pytest.raises(o.errors.DelegationTokenRequestNotAllowedError):
                by_token.create_delegation_token(timeout=PATIENCE)
        with pytest.raises(o.errors.DelegationTokenNotFoundError):
            bob.renew_delegation_token(b"no such token")
        bob.expire_delegation_token(token.hmac)
        until(lambda: bob.describe_delegation_tokens() == [])
    for_carol = admin.create_delegation_token(owner="User:carol")
    assert (for_carol.owner, for_carol.requester == "User:carol") == ("User:carol", False)
    until(lambda: for_carol in admin.describe_delegation_tokens("User:carol"))
    with pytest.raises(o.errors.DelegationTokenOwnerMismatchError):  # neither owner nor renewer
        admin.expire_delegation_token(for_carol.hmac)


@pytest.mark.long  # shorter tests: test_admin_commands.py, test_hostile_commands.py
def test_every_subcommand_works_on_a_secured_cluster(
    guarded: LocalCluster,
    admin: o.Admin,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run every subcommand with a file and a profile, as a superuser and as bob without ACLs."""
    inner = guarded.inner_config()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ODRADEK_PROFILE", "guarded")
    profiles = {"guarded": inner, "bob": guarded.client_config("bob")}
    place = tmp_path / "odradek" / "config.toml"
    place.parent.mkdir()
    place.touch(0o600)
    place.write_text(
        "".join(
            f"[profile.{name}]\n"
            + "".join(f'"{key}" = {json.dumps(revealed(value))}\n' for key, value in given.items())
            for name, given in profiles.items()
        )
    )
    (directory, *_) = as_json("logdirs", "describe")["log_dirs"]
    command_config = tmp_path / "client.properties"
    command_config.touch(0o600)
    command_config.write_text("".join(f"{k}={revealed(v)}\n" for k, v in inner.items()))
    prepare = partial(create_group_and_transactional_id, admin, inner, topic)
    flags = ("--command-config", str(command_config))
    walk(topic, directory["broker"], directory["path"], *flags, prepare=prepare)
    for line, right in (
        (f"topics create {topic}", f"CREATE on topic '{topic}'"),
        ("cluster quorum", "DESCRIBE on the cluster"),
        ("logdirs describe", "DESCRIBE on the cluster"),
        ("configs alter broker --default --set log.cleaner.threads=2", "ALTER_CONFIGS on"),
    ):
        code, _, err = run(*line.split(), "--profile", "bob")
        assert code == 1
        assert f"User 'bob' needs {right}" in err


def revealed(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)
