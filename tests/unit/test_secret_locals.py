"""Errors of wrong arguments and their causes have no secret in local variables of our frames.

The table covers the arguments in which programs pass secrets: clients' settings in the words of
each client, user information in addresses and URLs, registries' settings, `set_sasl_credentials`.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from tests.planted_secrets import plant, with_locals

import odradek
from odradek.compat import aiokafka as our_aiokafka
from odradek.compat import confluent_kafka as ours
from odradek.compat.aiokafka.admin import AIOKafkaAdminClient
from odradek.compat.confluent_kafka import admin as our_admin
from odradek.compat.confluent_kafka import aio as our_aio
from odradek.runtime.properties import read_properties
from odradek.serialization import (
    AsyncSchemaRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    SchemaRegistryClient,
)

PASSWORD = "xyzzy-plugh-17"  # noqa: S105 - the secret that mustn't be seen
NOWHERE = "127.0.0.1:1"
URL = f"https://alice:{PASSWORD}@127.0.0.1:1/token?key={PASSWORD}"
LOGIN = {
    "bootstrap.servers": NOWHERE,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": PASSWORD,
}
WRONG: dict[str, dict[str, Any]] = {
    "an unknown option": {"no.such.option": 1},
    "a misspelt password": {"sasl.pasword": PASSWORD},
    "an invalid value": {"reconnect.backoff.ms": "soon"},
    "an invalid protocol": {"security.protocol": "SASL"},
    "a mechanism": {"sasl.mechanism": "SCRAM-MD5"},
    "no user": {"sasl.username": None},
    "a list as the password": {"sasl.password": [PASSWORD]},
    "user information in an address": {"bootstrap.servers": f"alice:{PASSWORD}@127.0.0.1:1"},
    "a refused option": {"ssl.engine.location": PASSWORD},
    "a token as a text": {"sasl.mechanism": "OAUTHBEARER", "oauth.cb": PASSWORD},
    "a token endpoint without id": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": URL,
    },
    "user information in the token endpoint": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.client.id": "one",
        "sasl.oauthbearer.client.secret": PASSWORD,
    },
    "an invalid token endpoint": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": URL.replace("https", "gopher"),
        "sasl.oauthbearer.client.id": "one",
        "sasl.oauthbearer.client.secret": PASSWORD,
    },
    "a proxy": {"proxy.url": f"https://alice:{PASSWORD}@127.0.0.1:1"},
}
Make = Callable[[dict[str, Any]], object]


async def _in_loop(make: Callable[[], object]) -> object:
    return make()


def under_names(given: dict[str, Any]) -> dict[str, Any]:
    """Convert settings to keyword arguments, with underscores in the names."""
    return {name.replace(".", "_"): value for name, value in given.items()}


NATIVE: dict[str, Make] = {
    "Producer": lambda given: odradek.Producer(given),
    "Consumer": lambda given: odradek.Consumer(**under_names(given)),
    "Admin": lambda given: odradek.Admin(given),
    "AsyncProducer": lambda given: odradek.AsyncProducer(given),
    "AsyncConsumer": lambda given: odradek.AsyncConsumer(given),
    "AsyncAdmin": lambda given: odradek.AsyncAdmin(**under_names(given)),
}
GROUP = {"group.id": "g"}
COMPAT: dict[str, Make] = {
    "Producer": lambda given: ours.Producer(given),
    "Producer by keywords": lambda given: ours.Producer({}, **given),
    "Consumer": lambda given: ours.Consumer({**given, **GROUP}),
    "Consumer without a group": lambda given: ours.Consumer(given),
    "SerializingProducer": lambda given: ours.SerializingProducer(given),
    "DeserializingConsumer": lambda given: ours.DeserializingConsumer({**given, **GROUP}),
    "AdminClient": lambda given: our_admin.AdminClient(given),
    "AIOProducer": lambda given: asyncio.run(_in_loop(lambda: our_aio.AIOProducer(given))),
    "AIOConsumer": lambda given: asyncio.run(_in_loop(lambda: our_aio.AIOConsumer(given))),
}


def shown(make: Callable[[], object]) -> str | None:
    """Return the call's traceback with all local variables; None if it raised no error."""
    plant(PASSWORD)
    try:
        made = make()
    except Exception as error:
        return with_locals(error)
    close = getattr(made, "close", bool)
    if asyncio.iscoroutinefunction(close):
        asyncio.run(close())
    else:
        close()
    return None


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("client", NATIVE)
def test_errors_of_odradeks_own_clients_hide_secrets(client: str, wrong: str) -> None:
    found = shown(lambda: NATIVE[client]({**LOGIN, **WRONG[wrong]}))
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("client", COMPAT)
def test_errors_of_confluent_kafka_clients_hide_secrets(client: str, wrong: str) -> None:
    found = shown(lambda: COMPAT[client]({**LOGIN, **WRONG[wrong]}))
    assert found is not None or "user" in wrong or "endpoint" in wrong
    assert PASSWORD not in (found or "")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ours.Producer(f"sasl.password={PASSWORD}"),
        lambda: ours.Producer(LOGIN, {"sasl.password": PASSWORD}),
        lambda: ours.Producer({**LOGIN, "default.topic.config": PASSWORD}),
        lambda: ours.Producer({**LOGIN, "error_cb": PASSWORD}),
        lambda: our_admin.AdminClient([PASSWORD]),  # type: ignore[arg-type]  # that is the test
    ],
)
def test_errors_about_wrong_types_of_arguments_hide_secrets(make: Callable[[], object]) -> None:
    found = shown(make)
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl_kerberos_domain_name": "x"},
        {"sasl_mechanism": "PLAINTEXT"},
        {"security_protocol": "SASL"},
        {"sasl_plain_username": None},
        {"bootstrap_servers": f"alice:{PASSWORD}@127.0.0.1:1"},
        {"bootstrap_servers": 7},
        {"sasl_plain_pasword": PASSWORD},
        {"retry_backoff_ms": "soon"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
@pytest.mark.parametrize(
    "kind",
    [our_aiokafka.AIOKafkaProducer, our_aiokafka.AIOKafkaConsumer, AIOKafkaAdminClient],
)
def test_errors_of_aiokafka_clients_hide_secrets(kind: Any, wrong: dict[str, Any]) -> None:
    given = {
        "bootstrap_servers": NOWHERE,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        **wrong,
    }
    found = shown(lambda: asyncio.run(_in_loop(lambda: kind(**given))))
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize("kind", [SchemaRegistryClient, AsyncSchemaRegistryClient])
@pytest.mark.parametrize(
    "wrong",
    [
        {"bearer.auth.tokn": PASSWORD},
        {"bearer.auth.credentials.source": "STATIC", "bearer.token": PASSWORD},
        {"basic.auth.user.info": PASSWORD},
        {"basic.auth.user.infos": f"alice:{PASSWORD}"},
        {"url": f"gopher://alice:{PASSWORD}@127.0.0.1:1"},
        {"url": f"https://alice:{PASSWORD}@127.0.0.1:1", "no.such.setting": 1},
        {"url": f"https://alice:{PASSWORD}@[::1", "timeout": 1},
    ],
    ids=lambda wrong: " ".join(wrong),
)
def test_errors_of_registry_clients_hide_secrets(kind: Any, wrong: dict[str, Any]) -> None:
    found = shown(lambda: kind({"url": "http://127.0.0.1:1", **wrong}))
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize(
    "make",
    [
        lambda given: AvroSerializer(given, '"string"'),
        lambda given: AvroDeserializer(given),
        lambda given: JSONSerializer("{}", given),
        lambda given: JSONDeserializer(None, schema_registry_client=given),
    ],
)
def test_settings_passed_in_place_of_a_registry_client_are_hidden(
    make: Callable[[Any], object],
) -> None:
    given = {"url": f"https://alice:{PASSWORD}@127.0.0.1:1", "basic.auth.user.info": PASSWORD}
    found = shown(lambda: make(given))
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize("given", [("alice", PASSWORD), (7, PASSWORD), ("alice", [PASSWORD])])
def test_errors_about_new_credentials_hide_secrets(given: tuple[Any, Any]) -> None:
    """Errors arise because the client has no SASL, or the credentials aren't strings."""
    plain = {"bootstrap.servers": NOWHERE}
    with odradek.Admin(plain) as admin:
        found = shown(lambda: admin.set_sasl_credentials(*given))
        assert found is not None
        assert PASSWORD not in found
    client = ours.Producer(plain)
    assert PASSWORD not in (shown(lambda: client.set_sasl_credentials(*given)) or "")
    client.close()

    async def program() -> str | None:
        producer = our_aio.AIOProducer(plain)
        try:
            await producer.set_sasl_credentials(*given)
        except TypeError as error:
            return with_locals(error)
        finally:
            await producer.close()
        return None

    assert PASSWORD not in (asyncio.run(program()) or "")


@pytest.mark.parametrize("name", ["Producer", "Consumer", "AdminClient"])
def test_clients_keep_no_secret_in_plain_text(name: str) -> None:
    made: Any = COMPAT[name](LOGIN)
    owner = made._core if name == "Consumer" else made
    assert PASSWORD not in f"{owner._given.ours} {owner._given.admin}"
    owner._given.ours["sasl.password"].reveal()
    made.close() if name != "AdminClient" else made.__exit__(None, None, None)


def test_errors_about_an_unreachable_token_server_hide_secrets() -> None:
    """The URL may contain a password, and isn't in frames of the error's causes either."""
    given = {
        **LOGIN,
        **WRONG["an invalid token endpoint"],
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:1/token?key={PASSWORD}",
        "socket.connection.setup.timeout.ms": 1000,
    }
    del given["sasl.username"], given["sasl.password"]
    provider = {"sasl.oauthbearer.config": PASSWORD}
    with odradek.Admin({**given, **provider}) as admin:
        found = shown(lambda: admin.describe_cluster(timeout=2))
    assert found is not None
    assert PASSWORD not in found


def test_errors_about_a_path_passed_as_settings_hide_secrets() -> None:
    found = shown(lambda: read_properties(f"sasl.password={PASSWORD}\nlinger.ms"))
    assert found is not None
    assert PASSWORD not in found


@pytest.mark.parametrize("token", [f"{PASSWORD}\nx", PASSWORD.encode()], ids=["unfit", "bytes"])
def test_an_unusable_token_is_in_no_local_variable_of_the_traceback(token: object) -> None:
    given = {
        "schema.registry.url": "http://127.0.0.1:1",
        "bearer.auth.token": lambda: token,
        "default.api.timeout.ms": 500,
    }
    client = odradek.serialization.SchemaRegistryClient(given)
    with pytest.raises(odradek.KafkaError) as caught:
        client.get_subjects()
    error: BaseException | None = caught.value
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "odradek/serialization/registry/settings" in frame.f_code.co_filename:
                assert PASSWORD not in repr(frame.f_locals)
        error = error.__cause__ or error.__context__
