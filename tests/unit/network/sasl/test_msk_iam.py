"""Test AWS_MSK_IAM: AWS's published signatures, and the payload layout of aws-msk-iam-auth."""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from odradek.common.errors import ServerNotTrustedError, TokenError
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.sasl.mechanism import WorkerCall
from odradek.network.sasl.msk_iam import (
    AwsCredentials,
    MskIam,
    SigningScope,
    bearer_token,
    payload,
    presigned,
    region_of,
)

KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
THEN = 1440938160.0  # 2015-08-30T12:36:00Z, as in all test vectors of AWS
PLAIN = AwsCredentials("AKIDEXAMPLE", Secret(KEY))
SESSION = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
TEMPORARY = AwsCredentials("AKIDEXAMPLE", Secret(KEY), Secret(SESSION))
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BROKER = Address("b-1.mine.abcdef.c2.kafka.eu-central-1.amazonaws.com", 9098)


# Signatures of requests in AWS's test suite for signature version 4.
@pytest.mark.parametrize(
    ("credentials", "query", "signature"),
    [
        (PLAIN, {}, "e93c787ed7f371d5c6b165c1b38ede9550f4dce4144713e844b25b7192d3865d"),
        (TEMPORARY, {}, "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c"),
        (
            PLAIN,
            {"Param2": "value2", "Param1": "value1"},
            "86012e2c9ad4d77369f5d81c11f75158aae4f895a085212cc6d3f923d300bed5",
        ),
        (
            PLAIN,
            {UNRESERVED: UNRESERVED},
            "8e76a88a7433637b12778d5592799b29ad21ecd6cf6325051c21d86f0acda2bf",
        ),
    ],
    ids=["vanilla", "session token", "order", "unreserved"],
)
def test_signatures_equal_those_that_aws_published(
    credentials: AwsCredentials, query: dict[str, str], signature: str
) -> None:
    scope = SigningScope("us-east-1", "service", THEN, 3600)
    signed = presigned("example.amazonaws.com", query, credentials, scope)
    assert signed["X-Amz-Signature"] == signature


def test_the_login_payload_has_the_documented_layout() -> None:
    found = json.loads(payload(BROKER.host, TEMPORARY, "eu-central-1", THEN).reveal())
    signature = found.pop("x-amz-signature")
    assert len(bytes.fromhex(signature)) == 32
    assert found == {
        "version": "2020_10_22",
        "host": BROKER.host,
        "user-agent": "odradek",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "AKIDEXAMPLE/20150830/eu-central-1/kafka-cluster/aws4_request",
        "x-amz-date": "20150830T123600Z",
        "x-amz-security-token": SESSION,
        "x-amz-signedheaders": "host",
        "x-amz-expires": "900",
    }
    scope = SigningScope("eu-central-1", "kafka-cluster", THEN)
    query = {"Action": "kafka-cluster:Connect"}
    assert signature == presigned(BROKER.host, query, TEMPORARY, scope)["X-Amz-Signature"]
    assert "x-amz-security-token" not in payload(BROKER.host, PLAIN, "x", THEN).reveal()


def test_the_bearer_token_is_a_signed_url() -> None:
    token, end = bearer_token(TEMPORARY, "us-west-2", THEN + 0.7)
    assert end == THEN + 900
    text = token.reveal()
    url = urlsplit(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.us-west-2.amazonaws.com", "/")
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert query.pop("User-Agent") == "odradek"
    scope = SigningScope("us-west-2", "kafka-cluster", THEN)
    action = {"Action": "kafka-cluster:Connect"}
    assert query == presigned(url.netloc, action, TEMPORARY, scope)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (BROKER.host, "eu-central-1"),
        ("boot-abc.c1.kafka-serverless.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.x.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.x.c3.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.my-cluster-1.x.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("b-2.eu-prod-1.x.c2.kafka.eu-west-3.amazonaws.com.", "eu-west-3"),
        ("b-3.us-orders-2.x.c2.kafka.EU-North-1.amazonaws.com", "eu-north-1"),
        ("b-1.my-cluster-1.x.c2.kafka.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("vpce-0a-1.vpce-svc-0b.us-west-2.vpce.amazonaws.com", "us-west-2"),
        ("b-1.x.c2.kafka.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("kafka.eu-prod-1.example.com", None),
        ("kafka.example.com", None),
        ("10.0.0.1", None),
    ],
)
def test_the_aws_region_is_read_from_the_brokers_host_name(host: str, region: str | None) -> None:
    assert region_of(host) == region


def start(sign: Callable[[Address], Secret] = lambda _: Secret("{}")) -> tuple[Any, WorkerCall]:
    """Start an authentication; return it and the function to run outside the engine."""
    talk = MskIam(sign).conversation(BROKER, random.Random(1))
    outside = next(talk)
    assert isinstance(outside, WorkerCall)
    return talk, outside


def test_the_signed_payload_is_sent_and_the_brokers_response_accepted() -> None:
    asked: list[Address] = []

    def sign(address: Address) -> Secret:
        asked.append(address)
        return Secret('{"a": 1}')

    talk, outside = start(sign)
    assert asked == []
    assert talk.send(outside.function(*outside.arguments)) == b'{"a": 1}'
    assert asked == [BROKER]
    with pytest.raises(StopIteration):
        talk.send(b'{"version": "2020_10_22", "request-id": "one"}')


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"{}", b'{"version": 1}', b"[" * 100000])
def test_a_malformed_response_is_rejected(answer: bytes) -> None:
    talk, _ = start()
    talk.send(Secret("{}"))
    with pytest.raises(ServerNotTrustedError, match=f"sent {len(answer)} bytes"):
        talk.send(answer)


def test_a_timeout_while_aws_credentials_are_read_becomes_a_token_error() -> None:
    with pytest.raises(TokenError, match="no AWS credentials before the timeout"):
        start()[0].throw(TimeoutError())
