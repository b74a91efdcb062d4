"""Configuration: names, types, the rules between options, warnings (R-CS-1, R-CS-7)."""

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
from odradek.common.security_options import IGNORED
from odradek.common.types import Address

B = {"bootstrap.servers": "h:9092"}


def config(client: str = CONSUMER, **values: Any) -> Config:
    return Config(client, {**B, **{k.replace("__", "."): v for k, v in values.items()}})


@pytest.mark.parametrize("client", [PRODUCER, CONSUMER, ADMIN])
def test_defaults_of_the_seeds_hold_for_every_client(client: str) -> None:
    c = Config(client, B)
    assert c["reconnect.backoff.ms"] == 0.05
    assert c["reconnect.backoff.max.ms"] == 1.0
    assert c["retry.backoff.ms"] == 0.1
    assert c["retry.backoff.max.ms"] == 1.0
    assert c["socket.connection.setup.timeout.ms"] == 10.0
    assert c["socket.connection.setup.timeout.max.ms"] == 30.0
    assert c["metadata.recovery.strategy"] == "rebootstrap"
    assert c["metadata.recovery.rebootstrap.trigger.ms"] == 300.0


@pytest.mark.parametrize(
    ("given", "pair"),
    [
        ({}, (0.05, 1.0)),
        ({"reconnect.backoff.ms": 50}, (0.05, 0.05)),
        ({"reconnect.backoff.ms": 123, "reconnect.backoff.max.ms": 12345}, (0.123, 12.345)),
        ({"reconnect.backoff.max.ms": 7000}, (0.05, 7.0)),
        ({"reconnect.backoff.ms": 2000, "reconnect.backoff.max.ms": 1000}, (2.0, 1.0)),
    ],
)
def test_kip_144_max_follows_the_base_by_presence(
    given: dict[str, int], pair: tuple[float, float]
) -> None:
    policy = Config(CONSUMER, {**B, **given}).backoff("reconnect.backoff")
    assert (policy.base, policy.maximum) == pair


def test_kip_144_presence_counts_for_keywords_too() -> None:
    assert Config(PRODUCER, B, reconnect_backoff_ms=50)["reconnect.backoff.max.ms"] == 0.05


def test_retry_max_never_inherits() -> None:
    assert config(retry__backoff__ms=5000)["retry.backoff.max.ms"] == 1.0


@pytest.mark.parametrize("name", ["retry.backoff", "socket.connection.setup.timeout"])
def test_a_base_above_its_max_warns_once_at_construction(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    c = Config(CONSUMER, {**B, f"{name}.ms": 40000, f"{name}.max.ms": 30000})
    (record,) = caplog.records
    assert f"{name}.ms (40000)" in record.getMessage()
    assert "constant 30000 ms" in record.getMessage()
    for _ in range(3):
        assert c.backoff(name).constant
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"reconnect.backoff.ms": 2000, "reconnect.backoff.max.ms": 1000},  # CF-08
        {"retry.backoff.ms": 1000},
        {},
    ],
)
def test_no_warning_without_need(given: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    Config(CONSUMER, {**B, **given})
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("bootstrap.server", "bootstrap.servers"), ("retry.backof.ms", "retry.backoff.ms")],
)
def test_unknown_names_are_errors_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name!r}.*did you mean {suggestion}"):
        Config(CONSUMER, {**B, name: "1"})


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Config(CONSUMER, {**B, "zzz": 1})
    assert "did you mean" not in str(caught.value)


def test_an_option_of_another_client_says_whose_it_is() -> None:
    with pytest.raises(ConfigurationError, match="option of the producer, not the consumer"):
        config(CONSUMER, linger__ms=5)


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
def test_kip_679_weaker_settings_switch_idempotence_off(
    given: dict[str, Any], acks: int, idempotent: bool
) -> None:
    found = Config(PRODUCER, {**B, **given})
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
def test_kip_679_settings_that_contradict_each_other(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        Config(PRODUCER, {**B, **given})


@pytest.mark.parametrize(
    ("given", "kept", "seconds"),
    [
        ("Earliest", "earliest", None),
        (" none", "none", None),
        ("by_duration:P7D", "by_duration:P7D", 604800.0),
        ("By_Duration:pt1h30m", "by_duration:PT1H30M", 5400.0),
    ],
)
def test_kip_1106_where_to_begin(given: str, kept: str, seconds: float | None) -> None:
    found = config(auto__offset__reset=given)["auto.offset.reset"]
    assert (found, lookback(found)) == (kept, seconds)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("by_duration", "latest, earliest, none or by_duration"),
        ("by_duration:", "'' isn't a duration"),
        ("by_duration:P1W", "'P1W' isn't a duration.*weeks"),
        ("by_duration:PT-1S", "'PT-1S' is negative"),
        ("smallest", "latest, earliest, none or by_duration"),
    ],
)
def test_kip_1106_what_is_refused(given: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"auto.offset.reset.*{text}"):
        config(auto__offset__reset=given)


@pytest.mark.parametrize("spelling", ["REBOOTSTRAP", "rebootstrap", "Rebootstrap "])
def test_the_strategy_is_case_insensitive(spelling: str) -> None:
    assert config(metadata__recovery__strategy=spelling)["metadata.recovery.strategy"] == (
        "rebootstrap"
    )


def test_a_wrong_strategy_names_the_right_ones() -> None:
    with pytest.raises(ConfigurationError, match="rebootstrap, none"):
        config(metadata__recovery__strategy="xyz")


def test_poll_raises_after_a_minute_with_none_only() -> None:
    name = "metadata.unavailable.timeout.ms"
    assert config()[name] is None
    assert config(metadata__recovery__strategy="none")[name] == 60.0
    assert Config(CONSUMER, {**B, name: 5, "metadata.recovery.strategy": "none"})[name] == 0.005


def test_the_time_of_a_delivery_makes_room_as_in_java() -> None:
    """A long linger left 1 ms for each request, and no broker answers so soon."""
    for given in ({"linger.ms": 10**9}, {"request.timeout.ms": 10**9}):
        made = Config(PRODUCER, {**B, **given})
        assert made["delivery.timeout.ms"] == made["linger.ms"] + made["request.timeout.ms"]
        assert made["request.timeout.ms"] >= 30.0
    short = Config(PRODUCER, {**B, "delivery.timeout.ms": 5000, "linger.ms": 1000})
    assert short["request.timeout.ms"] == 4.0
    for name in ("linger.ms", "request.timeout.ms"):
        with pytest.raises(ConfigurationError, match="must be at least linger"):
            Config(PRODUCER, {**B, "delivery.timeout.ms": 5000, name: 5000})


IDLE = "connections.max.idle.ms"


@pytest.mark.parametrize("name", [n for n in OPTIONS if n.endswith(".ms") and n not in IGNORED])
def test_negative_times_are_refused(name: str) -> None:
    client = next(iter(sorted(OPTIONS[name].clients)))
    with pytest.raises(ConfigurationError, match=name):
        Config(client, {**B, name: -2 if name == IDLE else -1})  # -1 is Java's "never" there


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
def test_times_that_requests_carry_have_32_bits(name: str) -> None:
    """All of them, and that no other option needs it: `simulation/test_largest_options.py`."""
    client = next(iter(sorted(OPTIONS[name].clients)))
    for value in (2**31, 10**15, str(2**31)):
        with pytest.raises(
            ConfigurationError, match=f"{name} must be . to 2147483647, not {value}"
        ):
            Config(client, {**B, name: value})


NAMES = [
    *("client.id", "group.id", "group.instance.id", "group.remote.assignor", "client.rack"),
    *("transactional.id", "cluster.id.expected", "events.topic", "sasl.username"),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_request_can_hold_are_refused_at_once(name: str) -> None:
    """Found when a request is encoded, they would look like trouble with the brokers."""
    client = next(iter(sorted(OPTIONS[name].clients)))
    assignor = {"group.protocol": "consumer"} if name == "group.remote.assignor" else {}
    kept = Config(client, {**B, **assignor, name: "ü" * 16_383})
    assert len(kept[name]) == 16_383
    with pytest.raises(ConfigurationError, match=f"^{name} .*32767 bytes at most, and has 32768"):
        Config(client, {**B, name: "ü" * 16_384})
    with pytest.raises(ConfigurationError, match=f"^{name} .*lone surrogate"):
        Config(client, {**B, name: "app-\udcfc"})


def test_librdkafka_s_limit_of_a_request_is_kafka_s() -> None:
    assert Config(PRODUCER, {**B, "message.max.bytes": 5_000_000})["max.request.size"] == 5_000_000


def test_idle_connections() -> None:
    assert config()[IDLE] == 540.0
    assert Config(PRODUCER, {**B, IDLE: 100})[IDLE] == 0.1
    for never in (0, "0", -1, "-1"):
        assert Config(PRODUCER, {**B, IDLE: never})[IDLE] == math.inf
    for value in (1, 20, 99):
        with pytest.raises(
            ConfigurationError, match=f"must be 100 or more, or 0 .* for never, not {value}: "
        ):
            Config(PRODUCER, {**B, IDLE: value})


@pytest.mark.parametrize("value", ["x", 1.5, True, None, ""])
def test_numbers_must_be_whole(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"retry\.backoff\.ms"):
        config(retry__backoff__ms=value)


@pytest.mark.parametrize("value", ["250", 250, 250.0])
def test_numbers_may_be_texts(value: Any) -> None:
    assert config(retry__backoff__ms=value)["retry.backoff.ms"] == 0.25


def test_a_name_given_twice_is_refused_in_whatever_spelling() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Config(CONSUMER, {**B, "client.id": "a"}, client_id="b")
    with pytest.raises(ConfigurationError, match="twice"):
        Config(CONSUMER, {**B, "client.id": "a", "client_id": "b"})


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("h:9092", Address("h", 9092)),
            ("[::1]:9092", Address("::1", 9092)),
            ("PLAINTEXT://h:1", Address("h", 1)),
        ],
    )
    def test_read(self, text: str, address: Address) -> None:
        assert parse_address("x", text) == address

    @pytest.mark.parametrize("text", ["h", "h:", ":9092", "h:0", "h:65536", "h:x"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="host:port"):
            Config(CONSUMER, {"bootstrap.servers": text})

    def test_lists_lose_their_doubles(self) -> None:
        c = Config(CONSUMER, {"bootstrap.servers": " a:1, b:2,a:1,"})
        assert c["bootstrap.servers"] == (Address("a", 1), Address("b", 2))
        c = Config(CONSUMER, {"bootstrap.servers": ["a:1"]})
        assert c["bootstrap.servers"] == (Address("a", 1),)

    @pytest.mark.parametrize("given", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": []}])
    def test_at_least_one_is_needed(self, given: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
            Config(CONSUMER, given)


class TestBetweenOptions:
    def test_delivery_timeout_covers_linger_and_request(self) -> None:
        with pytest.raises(ConfigurationError, match=r"delivery\.timeout\.ms"):
            config(PRODUCER, delivery__timeout__ms=1000, request__timeout__ms=2000)

    def test_a_short_delivery_timeout_alone_shortens_requests(self) -> None:
        c = config(PRODUCER, delivery__timeout__ms=1000)
        assert c["linger.ms"] + c["request.timeout.ms"] == pytest.approx(1.0)

    def test_a_long_poll_must_end_before_the_request_does(self) -> None:
        with pytest.raises(ConfigurationError, match=r"fetch\.max\.wait\.ms"):
            config(CONSUMER, fetch__max__wait__ms=30000)


def test_every_option_has_a_text() -> None:
    assert all(o.doc.strip() for o in OPTIONS.values())


@pytest.mark.parametrize(
    ("codec", "default", "good", "bad"),
    [
        ("gzip", -1, [1, 9, -1], [0, 10, -2, "fast"]),
        ("lz4", 9, [1, 17], [0, 18]),
        ("zstd", 3, [-131072, 0, 22], [-131073, 23]),
    ],
)
def test_levels_have_kafkas_names_defaults_and_ranges(
    codec: str, default: int, good: list[int], bad: list[Any]
) -> None:
    name = f"compression.{codec}.level"
    assert Config(PRODUCER, dict(B))[name] == default
    for level in good:
        assert Config(PRODUCER, {**B, name: str(level)})[name] == level
    for level in bad:
        with pytest.raises(ConfigurationError, match=re.escape(name)):
            Config(PRODUCER, {**B, name: level})


def test_kip_392_the_rack_of_a_consumer() -> None:
    assert config()["client.rack"] is None
    assert config(client__rack="eu-1a")["client.rack"] == "eu-1a"
    with pytest.raises(ConfigurationError, match="client.rack"):
        config(client__rack="")
    config(PRODUCER, client__rack="eu-1a")  # Java's producers take it; here it means nothing


def test_a_small_memory_lowers_the_largest_record_and_two_settings_that_contradict_are_told() -> (
    None
):
    assert config(PRODUCER, buffer__memory=16384)["max.request.size"] == 16384
    assert config(PRODUCER)["max.request.size"] == 1 << 20
    with pytest.raises(ConfigurationError, match=r"\(50000000\) .* \(33554432, the default\)"):
        config(PRODUCER, max__request__size=50_000_000)
    with pytest.raises(ConfigurationError, match=r"\(2000\) .* \(1024\): .* raise buffer.memory"):
        config(PRODUCER, max__request__size=2000, buffer__memory=1024)


@pytest.mark.parametrize(
    "servers", ["kafka://h:1,h:2", "PLAINTEXT://h:1,plaintext://h:2", "INSIDE://h:1,kafka://h:2"]
)
def test_addresses_may_have_schemes(servers: str) -> None:
    found = Config("producer", {"bootstrap.servers": servers})["bootstrap.servers"]
    assert [str(a) for a in found] == ["h:1", "h:2"]


@pytest.mark.parametrize("servers", ["kafka://user:s3cret@h:1", "user:s3cret@h:1"])
def test_a_password_in_an_address_is_refused_and_not_shown(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has an @.*sasl\.password") as caught:
        Config("producer", {"bootstrap.servers": servers})
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="isn't host:port"):
        Config("producer", {"bootstrap.servers": ["h:1,i:2"]})


def test_a_scheme_that_asks_for_another_protocol_is_told() -> None:
    for servers in ("h:1,SASL_SSL://h:2", ["h:1", "SASL_SSL://h:2"]):
        with pytest.raises(ConfigurationError, match=r"set security.protocol=SASL_SSL, or leave"):
            Config("producer", {"bootstrap.servers": servers})
    with pytest.raises(ConfigurationError, match=r"https://: give a broker's host:port"):
        Config("producer", {"bootstrap.servers": "https://h:2"})
    config = {"bootstrap.servers": "SSL://h:1", "security.protocol": "SSL"}
    assert Config("producer", config)["bootstrap.servers"]
