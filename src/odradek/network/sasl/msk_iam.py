"""Authenticate with AWS_MSK_IAM: an AWS signature (SigV4) over a request that is never sent.

The signature is that of Amazon's aws-msk-iam-auth. In: credentials and a region, which a function
fetches in a worker thread, and the time. Out: the signature as JSON, which brokers of Amazon MSK
accept, or as a bearer token for OAUTHBEARER. Signing takes four HMACs and is tested with AWS's
published test vectors; credentials that aren't configured come from botocore. Must not: send the
secret key, or show it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from odradek.common.errors import ServerNotTrustedError, TokenError
from odradek.common.secret import Secret
from odradek.common.types import Address, Rng
from odradek.network.sasl.mechanism import Conversation, WorkerCall

VERSION = "2020_10_22"
ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "kafka-cluster"
ACTION = ("Action", "kafka-cluster:Connect")
LIFETIME = 900
"""Seconds for which a signature is valid, as in Amazon's own clients."""
USER_AGENT = "odradek"
_REGION = re.compile(
    r"""(?:^|\.)([a-z]{2,}(?:-[a-z]+)+-\d{1,2})\.(?:vpce\.)?
    (?:amazonaws\.(?:com|com\.cn|eu)
    |c2s\.ic\.gov|sc2s\.sgov\.gov|csp\.hci\.ic\.gov|cloud\.adc-e\.uk)\.?$""",
    re.VERBOSE,
)
"""Matches only the label before AWS's domain, as a cluster's name may look like a region."""


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """AWS credentials for a signature: an access key, and a session token if it is temporary."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class SigningScope:
    """Region, service and time for which a signature is valid."""

    region: str
    service: str
    now: float
    """Time of the signature, in seconds since the epoch."""
    lifetime: int = LIFETIME

    @property
    def stamp(self) -> str:
        """The time in AWS's format."""
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y%m%dT%H%M%SZ")

    @property
    def text(self) -> str:
        """SigV4's credential scope: day, region and service."""
        return f"{self.stamp[:8]}/{self.region}/{self.service}/aws4_request"


def presigned(
    host: str, query: Mapping[str, str], credentials: AwsCredentials, scope: SigningScope
) -> dict[str, str]:
    """Return the signed query string of `GET https://host/?…` (SigV4 in query parameters)."""
    signed = dict(query)
    signed["X-Amz-Algorithm"] = ALGORITHM
    signed["X-Amz-Credential"] = f"{credentials.access_key_id}/{scope.text}"
    signed["X-Amz-Date"] = scope.stamp
    signed["X-Amz-Expires"] = str(scope.lifetime)
    if credentials.session_token is not None:
        signed["X-Amz-Security-Token"] = credentials.session_token.reveal()
    signed["X-Amz-SignedHeaders"] = "host"
    nothing = hashlib.sha256(b"").hexdigest()
    request = "\n".join(["GET", "/", encoded(signed), f"host:{host}", "", "host", nothing])
    digest = hashlib.sha256(request.encode()).hexdigest()
    message = f"{ALGORITHM}\n{scope.stamp}\n{scope.text}\n{digest}"
    signed["X-Amz-Signature"] = _signature(credentials.secret_access_key, scope, message)
    return signed


def encoded(query: Mapping[str, str]) -> str:
    """Encode a query as SigV4 needs it: sorted, and quoted except unreserved characters."""
    pairs = sorted((quote(name, safe="-_.~"), quote(v, safe="-_.~")) for name, v in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _signature(key: Secret, scope: SigningScope, message: str) -> str:
    day, region, service, last = scope.text.split("/")
    derived = hmac.digest(f"AWS4{key.reveal()}".encode(), day.encode(), "sha256")
    for part in (region, service, last):
        derived = hmac.digest(derived, part.encode(), "sha256")
    return hmac.digest(derived, message.encode(), "sha256").hex()


def payload(host: str, credentials: AwsCredentials, region: str, now: float) -> Secret:
    """Return the JSON for a broker: the signed query with names in lower case, host and version."""
    scope = SigningScope(region, SERVICE, now)
    signed = presigned(host, dict([ACTION]), credentials, scope)
    fields = {"version": VERSION, "host": host, "user-agent": USER_AGENT}
    fields |= {name.lower(): value for name, value in signed.items()}
    return Secret(json.dumps(fields, separators=(",", ":")))


def bearer_token(credentials: AwsCredentials, region: str, now: float) -> tuple[Secret, float]:
    """Return the signed URL as a token for OAUTHBEARER, with its expiry."""
    host = f"kafka.{region}.amazonaws.com"
    scope = SigningScope(region, SERVICE, float(int(now)))
    signed = presigned(host, dict([ACTION]), credentials, scope)
    signature = signed.pop("X-Amz-Signature")
    url = f"https://{host}/?{encoded(signed)}&X-Amz-Signature={signature}&User-Agent={USER_AGENT}"
    token = urlsafe_b64encode(url.encode()).rstrip(b"=").decode("ascii")
    return Secret(token), scope.now + LIFETIME


def region_of(host: str) -> str | None:
    """Return the region in a broker's name like b-1.name.id.c2.kafka.eu-central-1.amazonaws.com."""
    found = _REGION.search(host.lower())
    return found[1] if found else None


class MskIam:
    """The mechanism of one client; `sign` creates a broker's payload, in a worker thread."""

    name = "AWS_MSK_IAM"

    def __init__(self, sign: Callable[[Address], Secret]) -> None:
        self._sign = sign

    def conversation(self, address: Address, rng: Rng) -> Conversation:
        """Send one signed payload; the broker answers with a version and a request id."""
        try:
            signed: Secret = yield WorkerCall(self._sign, (address,))
        except TimeoutError as error:
            raise TokenError(
                "no AWS credentials before the timeout",
                cure="Check their source: sasl.aws.msk.iam.*, environment, or profile.",
            ) from error
        answer: bytes = yield signed.reveal().encode()
        if not _is_acceptance(answer):
            raise ServerNotTrustedError(
                f"the broker sent {len(answer)} bytes that aren't a valid AWS_MSK_IAM response"
            )


def _is_acceptance(answer: bytes) -> bool:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("version"), str)
