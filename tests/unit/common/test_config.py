"""Test configuration: names, types, rules between options, warnings (R-CS-1, R-CS-7)."""

import logging
import math
import re
from typing import Any

import pytest

from odradek.common.config import (
    ADMIN,
    CONSUMER,
    OPTIONS,
    PRODUCER,
    Config,
    lookback,
    parse_address,
)
from odradek.common.errors import ConfigurationError
from odradek.common.options.security import IGNORED
from odradek.common.types import Address

SERVERS, MAX_IDLE = "bootstrap.servers", "connections.max.idle.ms"
DELIVERY_TIMEOUT, REQUEST_TIMEOUT = "delivery.timeout.ms", "request.timeout.ms"
BROKER = {SERVERS: "h:9092"}


def config(client: str = CONSUMER, **values: Any) -> Config:
    return Config(client, {**BROKER, **{k.replace("__", "."): v for k, v in values.items()}})


SEEDS = {
    "reconnect.backoff.ms": 0.05,
    "reconnect.backoff.max.ms": 1.0,
    "retry.backoff.ms": 0.1,
    "retry.backoff.max.ms": 1.0,
    "socket.connection.setup.timeout.ms": 10.0,
    "socket.connection.setup.timeout.max.ms": 30.0,
    "metadata.recovery.strategy": "rebootstrap",
    "metadata.recovery.rebootstrap.trigger.ms": 300.0,
}
UNAVAILABLE_TIMEOUT, CLIENT_RACK = "metadata.unavailable.timeout.ms", "client.rack"
MAX_REQUEST_SIZE = "max.request.size"
RECOVERY, OFFSET_RESET = "metadata.recovery.strategy", "auto.offset.reset"
RETRY_BACKOFF = "retry.backoff.ms"
NO_RECOVERY = {RECOVERY: "none"}


@pytest.mark.parametrize(
    ("client", "given", "expected"),
    [
        *((client, {}, SEEDS) for client in (PRODUCER, CONSUMER, ADMIN)),
        (CONSUMER, {"retry.backoff.ms": 5000}, {"retry.backoff.max.ms": 1.0}),
        *(
            (CONSUMER, {RETRY_BACKOFF: value}, {RETRY_BACKOFF: 0.25})
            for value in ("250", 250, 250.0)
        ),
        *(
            (CONSUMER, {RECOVERY: s}, {RECOVERY: "rebootstrap"})
            for s in ("REBOOTSTRAP", "Rebootstrap ")
        ),
        # This timeout is None by default, and a minute with metadata.recovery.strategy=none.
        (CONSUMER, {}, {UNAVAILABLE_TIMEOUT: None, MAX_IDLE: 540.0, CLIENT_RACK: None}),
        (CONSUMER, NO_RECOVERY, {UNAVAILABLE_TIMEOUT: 60.0}),
        (CONSUMER, {**NO_RECOVERY, UNAVAILABLE_TIMEOUT: 5}, {UNAVAILABLE_TIMEOUT: 0.005}),
        # As in Java, a short delivery timeout lowers the request timeout, a long linger doesn't.
        (PRODUCER, {"linger.ms": 10**9}, {DELIVERY_TIMEOUT: 10**6 + 30.0, REQUEST_TIMEOUT: 30.0}),
        (
            PRODUCER,
            {REQUEST_TIMEOUT: 10**9},
            {DELIVERY_TIMEOUT: 10**6 + 0.005, REQUEST_TIMEOUT: 10.0**6},
        ),
        (PRODUCER, {DELIVERY_TIMEOUT: 5000, "linger.ms": 1000}, {REQUEST_TIMEOUT: 4.0}),
        (PRODUCER, {DELIVERY_TIMEOUT: 1000}, {"linger.ms": 0.005, REQUEST_TIMEOUT: 0.995}),
        (PRODUCER, {"message.max.bytes": 5_000_000}, {MAX_REQUEST_SIZE: 5_000_000}),
        (PRODUCER, {MAX_IDLE: 100}, {MAX_IDLE: 0.1}),
        *((PRODUCER, {MAX_IDLE: never}, {MAX_IDLE: math.inf}) for never in (0, "0", -1, "-1")),
        (CONSUMER, {CLIENT_RACK: "eu-1a"}, {CLIENT_RACK: "eu-1a"}),
        (PRODUCER, {"buffer.memory": 16384}, {MAX_REQUEST_SIZE: 16384}),
        (PRODUCER, {}, {MAX_REQUEST_SIZE: 1 << 20}),
    ],
)
def test_options_are_parsed_and_have_the_expected_defaults(
    client: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = Config(client, {**BROKER, **given})
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("client", "given", "text"),
    [
        (CONSUMER, {"bootstrap.server": "1"}, "server'.*did you mean bootstrap.servers"),
        (CONSUMER, {"retry.backof.ms": "1"}, "ms'.*did you mean retry.backoff.ms"),
        (CONSUMER, {RECOVERY: "xyz"}, "rebootstrap, none"),
        *(
            (CONSUMER, {RETRY_BACKOFF: value}, RETRY_BACKOFF)
            for value in ("x", 1.5, True, None, "")
        ),
        (CONSUMER, {"client.id": "a", "client_id": "b"}, "twice"),
        (CONSUMER, {"fetch.max.wait.ms": 30000}, "fetch.max.wait.ms"),
        (CONSUMER, {CLIENT_RACK: ""}, CLIENT_RACK),
        (PRODUCER, {DELIVERY_TIMEOUT: 5000, "linger.ms": 5000}, "must be at least linger"),
        (PRODUCER, {DELIVERY_TIMEOUT: 5000, REQUEST_TIMEOUT: 5000}, "must be at least linger"),
        *(
            (PRODUCER, {MAX_IDLE: n}, f"must be 100 or more, or 0 .* for never, not {n}: ")
            for n in (1, 20, 99)
        ),
        (PRODUCER, {MAX_REQUEST_SIZE: 50_000_000}, r"\(50000000\) .* \(33554432, the default\)"),
        (
            PRODUCER,
            {MAX_REQUEST_SIZE: 2000, "buffer.memory": 1024},
            r"\(2000\) .* \(1024\), .*: raise buffer.memory",
        ),
        # KIP-1106
        (CONSUMER, {OFFSET_RESET: "by_duration"}, "reset.*latest, earliest, none or by_duration"),
        (CONSUMER, {OFFSET_RESET: "by_duration:"}, "reset.*'' isn't a duration"),
        (CONSUMER, {OFFSET_RESET: "by_duration:P1W"}, "reset.*'P1W' isn't a duration.*weeks"),
        (CONSUMER, {OFFSET_RESET: "by_duration:PT-1S"}, "reset.*'PT-1S' is negative"),
        # Addresses
        *(
            (CONSUMER, {SERVERS: h}, "host:port")
            for h in ("h", "h:", ":1", "h:0", "h:65536", "h:x")
        ),
        (CONSUMER, {SERVERS: ""}, SERVERS),
        (CONSUMER, {SERVERS: []}, SERVERS),
        (PRODUCER, {SERVERS: ["h:1,i:2"]}, "isn't host:port"),
        (PRODUCER, {SERVERS: "h:1,SASL_SSL://h:2"}, "set security.protocol=SASL_SSL, or remove"),
        (PRODUCER, {SERVERS: ["h:1", "SASL_SSL://h:2"]}, "set security.protocol=SASL_SSL, or"),
        (PRODUCER, {SERVERS: "https://h:2"}, "https://: use the host:port of a broker"),
    ],
)
def test_invalid_configurations_are_rejected(client: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Config(client, {**BROKER, **given})


@pytest.mark.parametrize(
    ("given", "pair"),
    [
        ({}, (0.05, 1.0)),
        ({"reconnect.backoff.ms": 50}, (0.05, 1.0)),
        ({"reconnect.backoff.ms": 60}, (0.06, 0.06)),
        ({"reconnect.backoff.ms": 123, "reconnect.backoff.max.ms": 12345}, (0.123, 12.345)),
        ({"reconnect.backoff.max.ms": 7000}, (0.05, 7.0)),
        ({"reconnect.backoff.ms": 2000, "reconnect.backoff.max.ms": 1000}, (2.0, 1.0)),
    ],
)
def test_kip_144_a_changed_base_backoff_is_the_default_of_the_maximum_backoff(
    given: dict[str, int], pair: tuple[float, float]
) -> None:
    policy = Config(CONSUMER, {**BROKER, **given}).backoff("reconnect.backoff")
    assert (policy.base, policy.maximum) == pair


def test_kip_144_a_base_backoff_given_as_a_keyword_is_the_default_of_the_maximum() -> None:
    assert Config(PRODUCER, BROKER, reconnect_backoff_ms=60)["reconnect.backoff.max.ms"] == 0.06


@pytest.mark.parametrize("name", ["retry.backoff", "socket.connection.setup.timeout"])
def test_a_base_above_its_maximum_is_logged_once_as_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    c = Config(CONSUMER, {**BROKER, f"{name}.ms": 40000, f"{name}.max.ms": 30000})
    (record,) = caplog.records
    assert f"{name}.ms (40000)" in record.getMessage()
    assert "constant, 30000 ms" in record.getMessage()
    for _ in range(3):
        assert c.backoff(name).constant
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "given",
    [
        {
            "reconnect.backoff.ms": 2000,
            "reconnect.backoff.max.ms": 1000,
        },  # rule CF-08: this causes no warning
        {"retry.backoff.ms": 1000},
        {},
    ],
)
def test_a_reconnect_base_backoff_above_its_maximum_and_valid_backoffs_cause_no_warning(
    given: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    Config(CONSUMER, {**BROKER, **given})
    assert not caplog.records


def test_an_unknown_option_without_a_similar_name_gets_no_suggestion() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Config(CONSUMER, {**BROKER, "zzz": 1})
    assert "did you mean" not in str(caught.value)


IN_FLIGHT = "max.in.flight.requests.per.connection"


@pytest.mark.parametrize(
    ("given", "acks", "idempotent"),
    [
        ({}, -1, True),
        ({"acks": "all"}, -1, True),
        ({"acks": -1, "enable.idempotence": "true"}, -1, True),
        ({"acks": 1}, 1, False),
        ({"acks": "0"}, 0, False),
        ({"acks": 1, "enable.idempotence": False}, 1, False),
        ({"request.required.acks": 1}, 1, False),
        ({"enable.idempotence": "False"}, -1, False),
        ({"enable.idempotence": False, IN_FLIGHT: 1000}, -1, False),
        ({"acks": 1, IN_FLIGHT: 6}, 1, False),
        ({"retries": 0}, -1, False),
        ({"retries": 1, IN_FLIGHT: 5}, -1, True),
    ],
)
def test_kip_679_weaker_settings_disable_idempotence(
    given: dict[str, Any], acks: int, idempotent: bool
) -> None:
    found = Config(PRODUCER, {**BROKER, **given})
    assert (found["acks"], found["enable.idempotence"]) == (acks, idempotent)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"enable.idempotence": True, "acks": 1}, "enable.idempotence=true contradicts acks=1"),
        ({"enable.idempotence": True, "acks": 0}, "enable.idempotence=true contradicts acks=0"),
        ({"enable.idempotence": True, "retries": 0}, "contradicts retries=0"),
        ({"enable.idempotence": True, IN_FLIGHT: 6}, f"{IN_FLIGHT} must be 1 to 5 with"),
        ({IN_FLIGHT: 6}, f"{IN_FLIGHT} must be 1 to 5 with enable.idempotence, not 6"),
        ({"transactional.id": "x", "acks": 1}, "transactional.id contradicts acks=1"),
        ({"transactional.id": "x", "retries": 0}, "transactional.id contradicts retries=0"),
        (
            {"transactional.id": "x", "enable.idempotence": False},
            "transactional.id contradicts enable.idempotence=false",
        ),
        ({"acks": 2}, "acks must be all, 1 or 0, not 2"),
        ({"acks": True}, "acks must be all, 1 or 0, not True"),
        ({"acks": "leader"}, "acks must be all, 1 or 0"),
        ({"enable.idempotence": "maybe"}, "enable.idempotence must be true or false"),
        ({"enable.idempotence": False, IN_FLIGHT: 0}, f"{IN_FLIGHT} must be 1 to"),
    ],
)
def test_kip_679_contradictory_settings_are_rejected(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        Config(PRODUCER, {**BROKER, **given})


@pytest.mark.parametrize(
    ("given", "kept", "seconds"),
    [
        ("Earliest", "earliest", None),
        (" none", "none", None),
        ("by_duration:P7D", "by_duration:P7D", 604800.0),
        ("By_Duration:pt1h30m", "by_duration:PT1H30M", 5400.0),
    ],
)
def test_kip_1106_offset_reset_strategies_are_parsed(
    given: str, kept: str, seconds: float | None
) -> None:
    found = config(auto__offset__reset=given)["auto.offset.reset"]
    assert (found, lookback(found)) == (kept, seconds)


@pytest.mark.parametrize("name", [n for n in OPTIONS if n.endswith(".ms") and n not in IGNORED])
def test_negative_times_are_rejected(name: str) -> None:
    client = next(iter(sorted(OPTIONS[name].clients)))
    with pytest.raises(ConfigurationError, match=name):
        Config(
            client, {**BROKER, name: -2 if name == MAX_IDLE else -1}
        )  # -1 is Java's "never" for this option


@pytest.mark.parametrize(
    "name",
    [
        "request.timeout.ms",
        "fetch.max.wait.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "transaction.timeout.ms",
    ],
)
def test_times_sent_in_requests_must_fit_into_32_bits(name: str) -> None:
    """`simulation/test_largest_options.py` tests that other times work with larger values."""
    client = next(iter(sorted(OPTIONS[name].clients)))
    for value in (2**31, 10**15, str(2**31)):
        with pytest.raises(
            ConfigurationError, match=f"{name} must be . to 2147483647, not {value}"
        ):
            Config(client, {**BROKER, name: value})


NAMES = [
    *("client.id", "group.id", "group.remote.assignor", "client.rack", "transactional.id"),
    *("cluster.id.expected", "events.topic", "sasl.username"),
]


@pytest.mark.parametrize("name", NAMES)
def test_values_longer_than_32767_bytes_or_with_a_lone_surrogate_are_rejected(name: str) -> None:
    """Requests with such values would fail as if the brokers had failed."""
    client = next(iter(sorted(OPTIONS[name].clients)))
    assignor = {"group.protocol": "consumer"} if name == "group.remote.assignor" else {}
    kept = Config(client, {**BROKER, **assignor, name: "ü" * 16_383})
    assert len(kept[name]) == 16_383
    with pytest.raises(ConfigurationError, match=f"^{name} .*at most 32767 bytes, but has 32768"):
        Config(client, {**BROKER, name: "ü" * 16_384})
    with pytest.raises(ConfigurationError, match=f"^{name} .*lone surrogate"):
        Config(client, {**BROKER, name: "app-\udcfc"})


def test_an_option_given_in_two_spellings_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Config(CONSUMER, {**BROKER, "client.id": "a"}, client_id="b")


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("h:9092", Address("h", 9092)),
            ("[::1]:9092", Address("::1", 9092)),
            ("::1:9092", Address("::1", 9092)),
            ("[2001:db8::]:1", Address("2001:db8::", 1)),
            ("[2001:db8:0:0:0:0:0:1]:1", Address("2001:db8:0:0:0:0:0:1", 1)),
            ("[::ffff:127.0.0.1]:1", Address("::ffff:127.0.0.1", 1)),
            ("[fe80::1%lo]:1", Address("fe80::1%lo", 1)),
            ("bücher.example:1", Address("bücher.example", 1)),
            ("PLAINTEXT://h:1", Address("h", 1)),
        ],
    )
    def test_addresses_are_parsed(self, text: str, address: Address) -> None:
        assert parse_address("x", text) == address

    @pytest.mark.parametrize(
        "text",
        ["::1", "fe80::1", "2001:db8::1", "[2001:db8::1]", "2001:db8:0:0:0:0:0:1", "a:1:2"],
    )
    def test_an_ipv6_address_without_a_port_is_rejected(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"in brackets, and a port: \[::1\]:9092"):
            parse_address("x", text)

    def test_a_host_name_with_two_ports_is_rejected(self) -> None:
        with pytest.raises(ConfigurationError, match="isn't host:port, for example localhost:9092"):
            parse_address("x", "broker:9092:9093")

    @pytest.mark.parametrize("text", ["a:1;b:2", "a;b:2", "a:1 b:2", "a|b:1", "a:1;"])
    def test_addresses_with_separators_other_than_commas_are_rejected(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="separate addresses with commas, as in a:"):
            Config(PRODUCER, {SERVERS: text})

    def test_an_address_with_a_path_is_rejected(self) -> None:
        with pytest.raises(ConfigurationError, match="isn't host:port"):
            parse_address("x", "a/b:1")

    def test_duplicate_bootstrap_servers_are_removed(self) -> None:
        c = Config(CONSUMER, {"bootstrap.servers": " a:1, b:2,a:1,"})
        assert c["bootstrap.servers"] == (Address("a", 1), Address("b", 2))
        c = Config(CONSUMER, {"bootstrap.servers": ["a:1"]})
        assert c["bootstrap.servers"] == (Address("a", 1),)


@pytest.mark.parametrize(
    ("codec", "default", "good", "bad"),
    [
        ("gzip", -1, [1, 9, -1], [0, 10, -2, "fast"]),
        ("lz4", 9, [1, 17], [0, 18]),
        ("zstd", 3, [-131072, 0, 22], [-131073, 23]),
    ],
)
def test_compression_levels_have_kafkas_names_defaults_and_ranges(
    codec: str, default: int, good: list[int], bad: list[Any]
) -> None:
    name = f"compression.{codec}.level"
    assert Config(PRODUCER, dict(BROKER))[name] == default
    for level in good:
        assert Config(PRODUCER, {**BROKER, name: str(level)})[name] == level
    for level in bad:
        with pytest.raises(ConfigurationError, match=re.escape(name)):
            Config(PRODUCER, {**BROKER, name: level})


@pytest.mark.parametrize(
    "servers", ["kafka://h:1,h:2", "PLAINTEXT://h:1,plaintext://h:2", "INSIDE://h:1,kafka://h:2"]
)
def test_bootstrap_servers_may_have_schemes(servers: str) -> None:
    found = Config("producer", {"bootstrap.servers": servers})["bootstrap.servers"]
    assert [str(a) for a in found] == ["h:1", "h:2"]


@pytest.mark.parametrize("servers", ["kafka://user:s3cret@h:1", "user:s3cret@h:1"])
def test_a_password_in_an_address_is_rejected_and_not_shown(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"without a user and @.*sasl\.password") as caught:
        Config("producer", {"bootstrap.servers": servers})
    assert "s3cret" not in str(caught.value)


def test_the_scheme_of_an_address_may_repeat_the_security_protocol() -> None:
    config = {"bootstrap.servers": "SSL://h:1", "security.protocol": "SSL"}
    assert Config("producer", config)["bootstrap.servers"]


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap.servers is missing"):
        Config(CONSUMER, {})


def test_error_messages_use_a_or_an_before_the_kind_of_client() -> None:
    with pytest.raises(ConfigurationError, match="'zzz' for an admin$"):
        Config(ADMIN, {**BROKER, "zzz": 1})
    with pytest.raises(ConfigurationError, match="'zzz' for a producer$"):
        Config(PRODUCER, {**BROKER, "zzz": 1})
