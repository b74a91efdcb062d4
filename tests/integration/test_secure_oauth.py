"""Test OAUTHBEARER with a real broker that checks signatures with a token server's keys."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.interop.our_client import read
from tests.token_server import CLIENT_ID, CLIENT_SECRET, TokenServer

from odradek import Admin, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from odradek.common.errors import CredentialsRefusedError, TokenError, TokenExpiredError
from odradek.runtime.properties import read_properties
from odradek.testing import LocalCluster

PATIENCE = 60.0
AT_ONCE = 20.0
"""Limit in seconds; a call that misses the immediate response takes a minute."""


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(server: TokenServer) -> Iterator[LocalCluster]:
    """Return one broker that accepts tokens signed by this server's keys until they expire."""
    prefix = "listener.name.client.oauthbearer."
    config = {
        f"{prefix}sasl.oauthbearer.expected.audience": server.audience,
        f"{prefix}sasl.oauthbearer.expected.issuer": server.issuer,
        f"{prefix}connections.max.reauth.ms": "3600000",
    }
    with LocalCluster(
        brokers=1,
        security="SASL_SSL",
        mechanisms=["OAUTHBEARER"],
        jwks=server.url("/jwks"),
        config=config,
    ) as running:
        running.create_topic("tokens")
        yield running


def settings(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    """Return a client's settings, except for those of its tokens."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.ca.location": str(cluster.authority.certificate),
        "default.api.timeout.ms": int(PATIENCE * 1000),
        **more,
    }


def token_settings(server: TokenServer, secret: str = CLIENT_SECRET) -> dict[str, str]:
    return {
        "sasl.oauthbearer.token.endpoint.url": server.url(),
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": secret,
    }


def test_a_client_fetches_one_token_from_the_token_server(
    cluster: LocalCluster, server: TokenServer
) -> None:
    """Fetch one token for all connections of a client; librdkafka uses the same settings."""
    before = len(server.forms)
    with Admin(settings(cluster, **token_settings(server))) as admin:
        admin.create_topics([NewTopic("by-tokens", 1)])
    with Producer(settings(cluster, **token_settings(server))) as producer:
        producer.send("by-tokens", b"one").result(PATIENCE)
    assert len(server.forms) == before + 2
    theirs = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": server.url(),
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
    }
    options = settings(cluster, **theirs, **{"auto.offset.reset": "earliest"})
    words = {name: value for name, value in options.items() if name != "default.api.timeout.ms"}
    librdkafka = confluent_kafka.Consumer({**words, "group.id": "theirs"})
    try:
        assert "by-tokens" in librdkafka.list_topics(timeout=PATIENCE).topics
    finally:
        librdkafka.close()
    before += 1
    with Consumer(options) as consumer:
        consumer.assign([TopicPartition("by-tokens", 0)])
        assert len(read(consumer)) == 1
    assert len(server.forms) == before + 3


def test_a_java_clients_properties_file_works_unchanged(
    cluster: LocalCluster, server: TokenServer, tmp_path: Path
) -> None:
    """Read the same KIP-768 properties file with a Java client and with odradek."""
    modules = "org.apache.kafka.common.security.oauthbearer"
    file = tmp_path / "client.properties"
    file.write_text(f"""
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
ssl.truststore.type=PEM
ssl.truststore.location={cluster.authority.certificate}
sasl.login.callback.handler.class={modules}.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={server.url()}
sasl.jaas.config={modules}.OAuthBearerLoginModule required \\
  clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}";
""")
    before = len(server.forms)
    cluster.create_topic("by-java")
    cluster.run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "by-java",
         "--command-config", str(file)],
        given=b"by java\n",
        java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.url()}"],
    )  # fmt: skip
    assert len(server.forms) > before
    ours = {**read_properties(file), "bootstrap.servers": cluster.bootstrap_servers}
    for protocol in ("classic", "consumer"):
        group = {"group.id": f"by-java-{protocol}", "group.protocol": protocol}
        with Consumer({**ours, **group, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["by-java"])
            assert [record.value for record in read(consumer)] == [b"by java"]


def test_a_token_servers_error_is_raised_by_every_call_at_once(
    cluster: LocalCluster, server: TokenServer
) -> None:
    with Admin(settings(cluster, **token_settings(server, "wrong"))) as admin:
        began = time.monotonic()
        with pytest.raises(
            TokenError, match=r"HTTP status 401: invalid_client: Who are you\?"
        ) as caught:
            admin.describe_cluster()
        assert time.monotonic() - began < AT_ONCE
    assert CLIENT_SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"aud": "others"}, CredentialsRefusedError),
        ({"iss": "https://elsewhere"}, CredentialsRefusedError),
        ({"exp": 1_600_000_000}, TokenExpiredError),
    ],
    ids=["audience", "issuer", "end"],
)
def test_a_token_that_the_broker_rejects_raises_at_once(
    cluster: LocalCluster, server: TokenServer, claims: dict[str, Any], error: type[Exception]
) -> None:
    def token() -> str:
        return server.token(**claims)

    with Admin(settings(cluster, **{"sasl.oauthbearer.token.provider": token})) as admin:
        began = time.monotonic()
        with pytest.raises(error, match="token"):
            admin.describe_cluster()
        assert time.monotonic() - began < AT_ONCE


def test_a_new_token_is_sent_before_the_old_one_expires(
    cluster: LocalCluster, server: TokenServer
) -> None:
    """Check KIP-368: with sessions as short as their tokens no record is late or lost."""
    server.lifetime, before = 3, len(server.forms)
    try:
        with Producer(settings(cluster, **token_settings(server))) as producer:
            end = time.monotonic() + 6
            while time.monotonic() < end:
                producer.send("tokens", b"one").result(5.0)
                time.sleep(0.02)
    finally:
        server.lifetime = 3600
    assert 2 <= len(server.forms) - before <= 8


class KeptSession:
    """aiokafka-like token provider with one HTTP session, which belongs to the program's loop."""

    def __init__(self, server: TokenServer) -> None:
        self.server, self.given = server, 0
        self.session: asyncio.Lock | None = None

    async def token(self) -> str:
        self.session = self.session or asyncio.Lock()
        await asyncio.wait_for(self._turn(self.session), 5.0)
        self.given += 1
        return self.server.token()

    @staticmethod
    async def _turn(session: asyncio.Lock) -> None:
        if session.locked():
            raise RuntimeError("the first loop still holds it")
        await session.acquire()
        asyncio.get_running_loop().call_later(0.05, session.release)


def test_a_provider_with_a_persistent_session_renews_tokens(
    cluster: LocalCluster, server: TokenServer
) -> None:
    """Run the provider in the program's loop, because a new loop per call would lose its timers."""
    provider = KeptSession(server)

    async def program() -> None:
        given = settings(cluster, **{"sasl.oauthbearer.token.provider": provider})
        async with AsyncProducer(given) as producer:
            end = time.monotonic() + 6
            while time.monotonic() < end:
                await producer.send_and_wait("tokens", b"one")
                await asyncio.sleep(0.02)

    server.lifetime = 3
    try:
        asyncio.run(program())
    finally:
        server.lifetime = 3600
    assert provider.given >= 2


def test_a_token_function_that_hangs_or_raises_is_reported_as_a_token_error(
    cluster: LocalCluster,
) -> None:
    def broken() -> str:
        raise LookupError("the vault is sealed")

    with Admin(settings(cluster, **{"sasl.oauthbearer.token.provider": broken})) as admin:
        with pytest.raises(TokenError, match="the token function raised LookupError") as caught:
            admin.describe_cluster()
        assert isinstance(caught.value.__cause__, LookupError)

    released = threading.Event()

    def hanging() -> str:
        released.wait(PATIENCE)
        return "late"

    options = {
        "sasl.oauthbearer.token.provider": hanging,
        "socket.connection.setup.timeout.ms": 1000,
        "socket.connection.setup.timeout.max.ms": 1000,
    }
    try:
        with Admin(settings(cluster, **options)) as admin:
            began = time.monotonic()
            with pytest.raises(TokenError, match="return before the timeout"):
                admin.describe_cluster()
            assert time.monotonic() - began < AT_ONCE
    finally:
        released.set()
