"""Find AWS credentials for Amazon MSK in options, environment variables, or with botocore.

In: `sasl.aws.msk.iam.*` (or IAMLoginModule's options), the AWS_… variables. Out: the mechanism
AWS_MSK_IAM, or a token function for OAUTHBEARER. Configured keys need no other package; botocore
(the extra `odradek[aws]`) provides profiles, roles, single sign-on and the credentials of machines
and containers. Must not: contact AWS before a connection needs credentials; functions that may
block run in a worker thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, MissingExtraError, TokenError
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.sasl.msk_iam import AwsCredentials, MskIam, bearer_token, payload, region_of
from odradek.network.sasl.oauthbearer import Token
from odradek.runtime.credentials.single_flight import SingleFlight
from odradek.runtime.locks import new_lock

OPTIONS = "sasl.aws.msk.iam"
SESSION_NAME = "odradek"
AHEAD = 300.0
"""Seconds before the expiry of a role's credentials at which the role is assumed again."""
CURE = (
    "Set sasl.aws.msk.iam.access.key.id and .secret.access.key, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY in the environment. For profiles, roles and instance credentials: pip "
    "install 'odradek[aws]'."
)


def msk_iam_mechanism(config: Config) -> MskIam:
    """Return the mechanism AWS_MSK_IAM with this configuration's credentials."""
    source = CredentialSource(config)

    def sign(address: Address) -> Secret:
        region = source.region(address)
        return payload(address.host, source.credentials(), region, time.time())

    return MskIam(sign)


def msk_iam_tokens(config: Config) -> Callable[[], Token]:
    """Return a token function for OAUTHBEARER, as in Amazon's aws-msk-iam-sasl-signer."""
    source = CredentialSource(config)

    def fetch() -> Token:
        region = source.region(None)
        value, end = bearer_token(source.credentials(), region, time.time())
        return Token(value, end)

    return fetch


class CredentialSource:
    """Source of one client's AWS credentials, which several threads may use."""

    def __init__(self, config: Config, environment: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._environment = os.environ if environment is None else environment
        self._lock = new_lock()
        self._shared = SingleFlight(self._credentials)
        self._session: Any = None
        self._found: Any = None
        self._role: tuple[AwsCredentials, float] | None = None
        self._pair(f"{OPTIONS}.access.key.id", f"{OPTIONS}.secret.access.key")
        self._pair(f"{OPTIONS}.role.access.key.id", f"{OPTIONS}.role.secret.access.key")
        if self._option("role.arn") and not self._botocore():
            raise MissingExtraError(
                f"{OPTIONS}.role.arn needs botocore: pip install 'odradek[aws]'"
            )

    def _option(self, name: str) -> Any:
        return self._config[f"{OPTIONS}.{name}"]

    def _pair(self, name: str, secret: str) -> None:
        given = [one for one in (name, secret) if self._config[one] is not None]
        if len(given) == 1:
            missing = secret if given == [name] else name
            raise ConfigurationError(f"{missing} is missing: {given[0]} needs it")

    def region(self, address: Address | None) -> str:
        """Return the region: from the option, the broker's name, the environment or a profile."""
        bootstrap: tuple[Address, ...] = self._config["bootstrap.servers"] or ()
        hosts = [address.host] if address is not None else [one.host for one in bootstrap]
        found = self._option("region") or next(filter(None, map(region_of, hosts)), None)
        found = found or self._environment.get("AWS_REGION")
        found = found or self._environment.get("AWS_DEFAULT_REGION")
        if not found and self._botocore():
            found = self._open_session().get_config_variable("region")
        if not found:
            raise TokenError(
                "the AWS region is unknown",
                cure="Set sasl.aws.msk.iam.region, or AWS_REGION in the environment.",
            )
        return str(found)

    def credentials(self) -> AwsCredentials:
        """Return valid credentials; callers that need new ones at once share one request to AWS."""
        try:
            return self._shared()
        except (TokenError, ConfigurationError, TimeoutError):
            raise
        except Exception as error:  # botocore raises errors of many classes
            raise TokenError(
                f"getting AWS credentials failed: {type(error).__name__}", cure=CURE
            ) from error.with_traceback(None)

    def _credentials(self) -> AwsCredentials:
        if self._option("role.arn") is not None:
            return self._of_role()
        if self._option("profile") is None:
            given = self._given("access.key.id", "secret.access.key", "session.token")
            given = given or self._of_environment()
            if given is not None:
                return given
        found = self._of_session()
        if found is None:
            raise TokenError("no AWS credentials found", cure=CURE)
        return found

    def _given(self, name: str, secret: str, token: str) -> AwsCredentials | None:
        access_key: str | None = self._option(name)
        if access_key is None:
            return None
        return AwsCredentials(access_key, self._option(secret), self._option(token))

    def _of_environment(self) -> AwsCredentials | None:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        name, secret, token = map(self._environment.get, names)
        return _credentials(name, secret, token) if name and secret else None

    def _of_session(self) -> AwsCredentials | None:
        """Return the credentials that botocore finds and renews."""
        if not self._botocore():
            wanted = "sasl.aws.msk.iam.profile" if self._option("profile") else "credentials"
            raise TokenError(f"botocore is needed to find {wanted}", cure=CURE)
        if self._found is None:
            self._found = self._open_session().get_credentials()
        if self._found is None:
            return None
        frozen = self._found.get_frozen_credentials()
        return _credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _of_role(self) -> AwsCredentials:
        """Return credentials of an assumed role; assume it again shortly before its expiry."""
        if self._role is not None and time.time() < self._role[1] - AHEAD:
            return self._role[0]
        own = self._given("role.access.key.id", "role.secret.access.key", "role.session.token")
        own = own or self._given("access.key.id", "secret.access.key", "session.token")
        keys: dict[str, str] = {}
        if own is not None:
            keys = {
                "aws_access_key_id": own.access_key_id,
                "aws_secret_access_key": own.secret_access_key.reveal(),
            }
            if own.session_token is not None:
                keys["aws_session_token"] = own.session_token.reveal()
        region = self._option("sts.region")
        client = self._open_session().create_client("sts", region_name=region, **keys)
        keys.clear()
        external = self._option("role.external.id")
        answer = client.assume_role(
            RoleArn=self._option("role.arn"),
            RoleSessionName=self._option("role.session.name") or SESSION_NAME,
            **({"ExternalId": external} if external else {}),
        )["Credentials"]
        taken = _credentials(
            answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"]
        )
        self._role = (taken, answer["Expiration"].timestamp())
        return taken

    def _botocore(self) -> bool:
        """Return whether botocore is installed."""
        try:
            import_module("botocore.session")
        except ImportError:
            return False
        return True

    def _open_session(self) -> Any:
        with self._lock:
            if self._session is None:
                session = import_module("botocore.session")
                self._session = session.Session(profile=self._option("profile"))
            return self._session


def _credentials(name: str, secret: str, token: str | None) -> AwsCredentials:
    return AwsCredentials(name, Secret(secret), Secret(token) if token else None)
