"""Test AWS credentials and regions from options and the environment, without botocore."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, MissingExtraError, TokenError
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.sasl.msk_iam import AwsCredentials, bearer_token
from odradek.network.sasl.oauthbearer import Token
from odradek.runtime.credentials import msk_iam_credentials as msk_iam

NOWHERE = Address("localhost", 9098)
BASE = {
    "bootstrap.servers": "localhost:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
}
GIVEN = {
    "sasl.aws.msk.iam.access.key.id": "AKIDGIVEN",
    "sasl.aws.msk.iam.secret.access.key": "given-secret",
}
SECRET = {"AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
ROLE = "arn:aws:iam::123456789012:role/Reader"


@pytest.fixture(autouse=True)
def no_aws_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the user's AWS settings, and prevent requests to the EC2 metadata service."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def source(more: dict[str, Any] | None = None, **environment: str) -> msk_iam.CredentialSource:
    config = Config("admin", {**BASE, **(more or {})})
    return msk_iam.CredentialSource(config, environment or {"NOTHING": "here"})


@pytest.fixture
def without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)


@pytest.mark.usefixtures("without_botocore")
def test_static_credentials_need_no_botocore() -> None:
    given = source({**GIVEN, "sasl.aws.msk.iam.session.token": "t"}, AWS_ACCESS_KEY_ID="other")
    assert given.credentials() == AwsCredentials("AKIDGIVEN", Secret("given-secret"), Secret("t"))
    found = source({}, AWS_ACCESS_KEY_ID="AKIDENV", **SECRET)
    assert found.credentials() == AwsCredentials("AKIDENV", Secret("s"), Secret("t"))
    with pytest.raises(TokenError, match=r"botocore is needed to find .*odradek\[aws\]"):
        source().credentials()
    with pytest.raises(TokenError, match=r"botocore is needed to find .*iam.profile"):
        source({"sasl.aws.msk.iam.profile": "dev"}).credentials()
    with pytest.raises(MissingExtraError, match=r"role.arn needs botocore: .*odradek\[aws\]"):
        source({"sasl.aws.msk.iam.role.arn": ROLE})


def test_an_incomplete_pair_of_keys_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"secret.access.key is missing"):
        source({"sasl.aws.msk.iam.access.key.id": "A"})
    with pytest.raises(ConfigurationError, match=r"role.access.key.id is missing"):
        source({"sasl.aws.msk.iam.role.secret.access.key": "A"})


@pytest.mark.usefixtures("without_botocore")
def test_the_region_is_taken_from_options_the_brokers_address_or_the_environment() -> None:
    broker = Address("b-1.x.c2.kafka.eu-west-3.amazonaws.com", 9098)
    assert source(AWS_REGION="us-east-1").region(broker) == "eu-west-3"
    assert source(AWS_REGION="us-east-1").region(NOWHERE) == "us-east-1"
    assert source(AWS_DEFAULT_REGION="us-east-2").region(None) == "us-east-2"
    assert source({"sasl.aws.msk.iam.region": "sa-east-1"}).region(broker) == "sa-east-1"
    assert source({"bootstrap.servers": str(broker)}).region(None) == "eu-west-3"
    with pytest.raises(TokenError, match=r"Set sasl.aws.msk.iam.region"):
        source().region(NOWHERE)


def test_the_mechanism_and_the_token_function_are_created_from_the_options() -> None:
    broker = "b-1.x.c2.kafka.eu-west-3.amazonaws.com:9098"
    config = Config("admin", {**BASE, "bootstrap.servers": broker, **GIVEN})
    mechanism = msk_iam.msk_iam_mechanism(config)
    assert mechanism.name == "AWS_MSK_IAM"
    token = msk_iam.msk_iam_tokens(config)()
    assert isinstance(token, Token)
    assert token.expires_at is not None
    credentials = AwsCredentials("AKIDGIVEN", Secret("given-secret"))
    assert token.value == bearer_token(credentials, "eu-west-3", token.expires_at - 900)[0]
