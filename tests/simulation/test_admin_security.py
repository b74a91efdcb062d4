"""Admin calls about ACLs, passwords, quotas and tokens, in virtual time."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek import Admin, ArgumentError, ConfigurationError, KafkaTimeoutError
from odradek.admin import (
    AclBinding,
    AclBindingFilter,
    AlterConfigOp,
    ClientQuotaEntity,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek.errors import DelegationTokenNotFoundError, InvalidRequestError, ResourceNotFoundError

READ = AclBinding("TOPIC", "orders", "User:alice", "READ")
ALL = AclBinding("TOPIC", "*", "User:admin", "ALL")
PREFIX = AclBinding("TOPIC", "ord", "User:bob", "WRITE", "DENY", "PREFIXED", "10.0.0.1")
GROUP = AclBinding("GROUP", "g", "User:alice", "READ")


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def admin(stage: Stage) -> Admin:
    return stage.client(Admin, background=False)


def test_acls_are_created_described_and_deleted(admin: Admin) -> None:
    admin.create_acls([READ, ALL, PREFIX, GROUP])
    assert admin.describe_acls() == sorted([READ, ALL, PREFIX, GROUP])
    assert admin.describe_acls(AclBindingFilter(principal="User:alice")) == sorted([READ, GROUP])
    topics = AclBindingFilter("TOPIC", "orders", pattern_type="MATCH")
    assert admin.describe_acls(topics) == sorted([READ, ALL, PREFIX])
    assert admin.describe_acls(AclBindingFilter("TOPIC", "orders")) == [READ]
    denied = AclBindingFilter(permission_type="DENY")
    gone = admin.delete_acls([denied, AclBindingFilter("GROUP"), AclBindingFilter("USER")])
    assert list(gone.values()) == [[PREFIX], [GROUP], []]
    assert admin.describe_acls() == sorted([READ, ALL])


def test_invalid_acls_are_refused(admin: Admin) -> None:
    with pytest.raises(InvalidRequestError, match="User:alice|alice") as refused:
        admin.create_acls([AclBinding("TOPIC", "t", "alice", "READ"), READ])
    assert list(refused.value.results) == [READ]
    for wrong, problem in (
        (AclBinding("TABLE", "t", "User:a", "READ"), "TRANSACTIONAL_ID"),
        (AclBinding("TOPIC", "t", "User:a", "read"), "IDEMPOTENT_WRITE"),
        (AclBinding("TOPIC", "t", "User:a", "READ", "ANY"), "ALLOW, DENY"),
        (AclBinding("ANY", "t", "User:a", "READ"), "resource_type"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            admin.create_acls([wrong])
    with pytest.raises(ArgumentError, match="a list of AclBinding"):
        admin.create_acls(READ)  # type: ignore[arg-type]  # on purpose


def test_passwords_are_sent_hashed(stage: Stage, admin: Admin) -> None:
    salt = b"salt of mine"
    admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "wonder", 8192, salt),
            UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", "wonder"),
            UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", "builder"),
        ]
    )
    kept = stage.cluster.admin.scram
    assert kept["alice"][1] == (
        8192,
        salt,
        hashlib.pbkdf2_hmac("sha256", b"wonder", salt, 8192),
    )
    assert len({entry[1] for user in kept.values() for entry in user.values()}) == 3
    assert admin.describe_user_scram_credentials() == {
        "alice": (
            ScramCredentialInfo("SCRAM-SHA-256", 8192),
            ScramCredentialInfo("SCRAM-SHA-512", 4096),
        ),
        "bob": (ScramCredentialInfo("SCRAM-SHA-512", 4096),),
    }
    with pytest.raises(ResourceNotFoundError, match="user carol") as refused:
        admin.describe_user_scram_credentials(["carol", "bob"])
    assert list(refused.value.results) == ["bob"]
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", "SCRAM-SHA-512")])
    with pytest.raises(ResourceNotFoundError, match="user bob"):
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", "SCRAM-SHA-512")])
    assert list(admin.describe_user_scram_credentials()) == ["alice"]


def test_no_password_is_part_of_a_repr_or_an_error(admin: Admin) -> None:
    secret = UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "hush-hush", salt=b"hush")
    assert "hush" not in repr(secret)
    for wrong in (
        UserScramCredentialUpsertion("u", "SCRAM-SHA-1", "hush-hush"),
        UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "hush-hush", 5),
        UserScramCredentialUpsertion("u", "SCRAM-SHA-256", b"hush-hush"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError) as refused:
            admin.alter_user_scram_credentials([wrong])
        assert "hush" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="is empty"):
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "")])


def test_passwords_are_hashed_in_a_thread_within_the_timeout(
    stage: Stage, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash takes 12 ms, during which it would block the event loop and all other calls."""
    at = []

    def slow(*work: Any) -> bytes:
        at.append(stage.world.now)
        return b"salted"

    monkeypatch.setattr("odradek.clients.admin.users.salted_password", slow)
    users = [UserScramCredentialUpsertion(f"u{n}", "SCRAM-SHA-256", "secret") for n in range(3)]
    stage.world.hosts["admin"].worker_delay = 0.25
    begin = stage.world.now
    admin.alter_user_scram_credentials(users)
    assert len(at) == 3
    assert stage.world.now - begin > 0.7
    assert sorted(stage.cluster.admin.scram) == ["u0", "u1", "u2"]
    with pytest.raises(KafkaTimeoutError, match="waiting for the change of SCRAM credentials"):
        admin.alter_user_scram_credentials(users, timeout=0.4)
    assert admin.describe_user_scram_credentials()


def test_values_of_sensitive_options_are_not_shown() -> None:
    op = AlterConfigOp("listener.name.x.ssl.keystore.password", "hush")
    assert "hush" not in repr(op)
    assert "keystore.password" in repr(op)


def test_quotas_of_users_and_clients_are_changed_and_described(admin: Admin) -> None:
    alice, default = (
        ClientQuotaEntity(user="alice"),
        ClientQuotaEntity(user=ClientQuotaEntity.DEFAULT),
    )
    both = ClientQuotaEntity(user="alice", client_id="app")
    address = ClientQuotaEntity(ip="10.0.0.1")
    admin.alter_client_quotas(
        {
            alice: {"producer_byte_rate": 1000.5, "request_percentage": 50},
            default: {"consumer_byte_rate": 2000},
            both: {"producer_byte_rate": 10},
            address: {"connection_creation_rate": 5},
        }
    )
    assert len(admin.describe_client_quotas()) == 4
    assert admin.describe_client_quotas(alice, strict=True) == {
        alice: {"producer_byte_rate": 1000.5, "request_percentage": 50.0}
    }
    assert set(admin.describe_client_quotas(alice)) == {alice, both}
    assert set(admin.describe_client_quotas(default)) == {default}
    anybody = ClientQuotaEntity(user=ClientQuotaEntity.ANY)
    assert set(admin.describe_client_quotas(anybody, strict=True)) == {alice, default}
    admin.alter_client_quotas({alice: {"producer_byte_rate": None}}, validate_only=True)
    admin.alter_client_quotas({alice: {"request_percentage": None}})
    assert admin.describe_client_quotas(alice, strict=True) == {
        alice: {"producer_byte_rate": 1000.5}
    }
    with pytest.raises(InvalidRequestError, match="bandwidth") as refused:
        admin.alter_client_quotas({alice: {"bandwidth": 1}, both: {"producer_byte_rate": None}})
    assert list(refused.value.results) == [both]
    with pytest.raises(ConfigurationError, match="empty ClientQuotaEntity"):
        admin.alter_client_quotas({ClientQuotaEntity(): {"producer_byte_rate": 1}})


def test_delegation_tokens_are_created_described_renewed_and_expired(
    stage: Stage, admin: Admin
) -> None:
    token = admin.create_delegation_token(["User:bob"], max_lifetime=3 * 86400)
    assert (token.owner, token.requester) == ("User:admin", "User:admin")
    assert token.max_ms - token.issue_ms == 3 * 86400 * 1000
    assert token.expiry_ms - token.issue_ms == 86400 * 1000
    assert token.hmac.decode() not in repr(token)
    others = admin.create_delegation_token(owner="User:carol")
    assert admin.describe_delegation_tokens() == [token, others]
    assert admin.describe_delegation_tokens("User:carol") == [others]
    stage.world.advance(3600)
    renewed = admin.renew_delegation_token(token.hmac, period=86400)
    assert renewed > token.expiry_ms
    assert admin.describe_delegation_tokens("User:admin")[0].expiry_ms == renewed
    assert admin.expire_delegation_token(token.hmac, period=60) < renewed
    admin.expire_delegation_token(token.hmac)
    with pytest.raises(DelegationTokenNotFoundError):
        admin.renew_delegation_token(token.hmac)
    with pytest.raises(ConfigurationError, match="User:alice"):
        admin.create_delegation_token(["bob"])
