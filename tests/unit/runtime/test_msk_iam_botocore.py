"""Test AWS profiles, roles and signatures with botocore; roles come from a loopback STS."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from tests.token_server import TokenServer
from tests.unit.runtime.test_msk_iam_credentials import GIVEN, NOWHERE, no_aws_here, source

from odradek.common.errors import TokenError
from odradek.common.secret import Secret
from odradek.network.sasl.msk_iam import AwsCredentials, SigningScope, presigned

ROLE = "arn:aws:iam::123456789012:role/Reader"
__all__ = ["no_aws_here"]


def test_credentials_and_region_are_read_from_an_aws_profile(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[dev]\naws_access_key_id = AKIDDEV\naws_secret_access_key = dev\n"
    )
    (tmp_path / "config").write_text("[profile dev]\nregion = eu-north-1\n")
    found = source({"sasl.aws.msk.iam.profile": "dev"}, AWS_ACCESS_KEY_ID="A")
    assert found.credentials() == AwsCredentials("AKIDDEV", Secret("dev"))
    assert found.region(NOWHERE) == "eu-north-1"
    with pytest.raises(TokenError, match="ProfileNotFound"):
        source({"sasl.aws.msk.iam.profile": "none"}).credentials()
    with pytest.raises(TokenError, match="no AWS credentials found"):
        source().credentials()


ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>
<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-token</SessionToken>
<Expiration>{end}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class Sts(TokenServer):
    """A server that answers AssumeRole like AWS's Security Token Service (STS)."""

    end = "2099-01-01T00:00:00Z"

    def answer(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        return 200, ANSWER.format(end=self.end).encode()


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    with Sts() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url("/"))
        yield server


@pytest.mark.slow
def test_credentials_of_a_role_are_requested_and_used_until_they_expire(sts: Sts) -> None:
    options = {
        **GIVEN,
        "sasl.aws.msk.iam.role.arn": ROLE,
        "sasl.aws.msk.iam.role.session.name": "me",
        "sasl.aws.msk.iam.role.external.id": "partner",
        "sasl.aws.msk.iam.sts.region": "us-east-1",
    }
    found = source(options)
    taken = AwsCredentials("ASIAROLE", Secret("role-secret"), Secret("role-token"))
    assert found.credentials() == taken
    assert found.credentials() == taken
    (form,) = sts.forms  # the second call used the cached credentials
    assert form["RoleArn"] == ROLE
    assert form["RoleSessionName"] == "me"
    assert form["ExternalId"] == "partner"
    assert "Credential=AKIDGIVEN/" in sts.headers[0]["authorization"]
    sts.end = "2001-01-01T00:00:00Z"
    over = source(options)
    over.credentials()
    over.credentials()
    assert len(sts.forms) == 3


@pytest.mark.slow
def test_an_error_of_a_rejected_role_does_not_show_the_secret(sts: Sts) -> None:
    said = "<Error><Code>AccessDenied</Code><Message>no given-secret</Message></Error>"
    sts.faults.append((403, f"<ErrorResponse>{said}</ErrorResponse>".encode()))
    options = {
        **GIVEN,
        "sasl.aws.msk.iam.role.arn": ROLE,
        "sasl.aws.msk.iam.sts.region": "us-east-1",
    }
    with pytest.raises(TokenError, match=r"credentials failed: ClientError") as caught:
        source(options).credentials()
    assert "given-secret" not in str(caught.value)


def test_botocore_computes_the_same_signature() -> None:
    auth = import_module("botocore.auth")
    request_type = import_module("botocore.awsrequest").AWSRequest
    credentials = import_module("botocore.credentials").Credentials("AKID", "a/b+c=", "t/+=")
    request = request_type(
        "GET", "https://kafka.us-west-2.amazonaws.com/", params={"Action": "kafka-cluster:Connect"}
    )
    auth.SigV4QueryAuth(credentials, "kafka-cluster", "us-west-2", expires=900).add_auth(request)
    theirs = dict(parse_qsl(request.url.partition("?")[2]))
    now = datetime.datetime.strptime(theirs["X-Amz-Date"], "%Y%m%dT%H%M%S%z").timestamp()
    ours = presigned(
        "kafka.us-west-2.amazonaws.com",
        {"Action": "kafka-cluster:Connect"},
        AwsCredentials("AKID", Secret("a/b+c="), Secret("t/+=")),
        SigningScope("us-west-2", "kafka-cluster", now),
    )
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
