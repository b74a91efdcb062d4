"""Test the connection state of each broker address: backoff, timeout, IPs (KIP-144, KIP-601)."""

import math
import random

import pytest

from odradek.common.backoff import ExponentialBackoff
from odradek.common.sampled import Sampled
from odradek.common.types import Address
from odradek.network.cluster_connection_states import ClusterConnectionStates

A, B = Address("a", 9092), Address("a", 9093)


def states(seed: int = 1, base: float = 0.05, maximum: float = 1.0) -> ClusterConnectionStates:
    return ClusterConnectionStates(
        ExponentialBackoff(base, maximum), ExponentialBackoff(10.0, 30.0), random.Random(seed)
    )


@pytest.mark.parametrize("seed", range(20))
def test_failures_double_the_backoff_until_a_success(seed: int) -> None:
    s, now = states(seed), 0.0
    for base in (0.05, 0.1, 0.2, 0.4, 0.8, 1 / 1.2, 1 / 1.2):
        s.dialling(s.state(A), now)
        s.setup_done(A)  # a completed setup alone doesn't reset the backoff
        until = s.failed(A, now, None, connecting=False)
        assert 0.8 * base - 1e-9 <= until - now <= 1.2 * base + 1e-9
        assert s.backoff_left(A, now) == until - now
        now = until
        assert s.backoff_left(A, now) == 0.0
    s.proved(A, 1.0)
    assert s.failed(A, now, None, connecting=True) - now <= 0.06


def test_a_successful_connection_makes_an_address_available_again() -> None:
    s = states()
    s.failed(A, 0.0, None, connecting=True)
    s.state(A).dial_failed = True
    assert s.standing(A) == (True, True)
    s.proved(A, 1.0)
    assert s.standing(A) == (False, False)  # R-RB-2: the address is available


def test_a_failed_attempt_is_remembered_until_a_success() -> None:
    s = states()
    s.state(A).dialled_in_vain()
    assert s.standing(A) == (False, True)


def test_each_backoff_gets_a_single_random_jitter() -> None:
    s = states()
    s.failed(A, 0.0, None, connecting=True)
    assert len({s.backoff_left(A, 0.0) for _ in range(50)}) == 1


def test_an_orderly_close_starts_the_base_backoff_but_never_shortens_a_running_backoff() -> None:
    s = states()
    for _ in range(3):
        assert 0.04 <= s.closed(A, 1.0) - 1.0 <= 0.06
    assert s.state(A).failures == 0
    for _ in range(6):
        s.failed(A, 2.0, None, connecting=True)
    left = s.backoff_left(A, 2.0)
    s.closed(A, 2.0)
    assert s.backoff_left(A, 2.0) == left


def test_connection_setup_timeouts_grow_with_failures_until_a_setup_succeeds() -> None:
    s = states()
    found = []
    for _ in range(4):
        found.append(s.dialling(s.state(A), 0.0))
        assert s.dialling(s.state(A), 0.0) == found[-1]  # the same random timeout until a failure
        s.failed(A, 0.0, None, connecting=True)
    for timeout, low, high in zip(found, (8, 16, 24, 24), (12, 24, 30, 30), strict=True):
        assert low <= timeout <= high
    s.dialling(s.state(A), 0.0)
    s.setup_done(A)
    assert 8 <= s.dialling(s.state(A), 0.0) <= 12


class TestPickIp:
    def test_after_each_failed_attempt_the_hosts_next_ip_is_tried(self) -> None:
        s, ips = states(), ["1", "2", "3"]
        assert [s.pick_ip(A, ips) for _ in range(7)] == ["1", "2", "3", "1", "2", "3", "1"]
        t, both = states(), ["1", "2"]
        t.pick_ip(A, both)
        t.closed(A, 0.0)
        assert t.pick_ip(A, both) == "2"

    def test_ips_of_the_same_family_as_the_first_are_tried_first(self) -> None:
        s = states()
        assert [s.pick_ip(A, ["v4", "::1", "v4b"]) for _ in range(3)] == ["v4", "v4b", "::1"]
        assert [s.pick_ip(B, ["::1", "v4", "::2"]) for _ in range(3)] == ["::1", "::2", "v4"]

    def test_after_a_connection_loss_its_ip_is_tried_last_even_if_the_dns_order_changes(
        self,
    ) -> None:
        s = states()
        assert s.pick_ip(A, ["1", "2"]) == "1"
        s.failed(A, 0.0, None, connecting=False)
        assert s.pick_ip(A, ["1", "2"]) == "2"
        s.failed(A, 0.0, None, connecting=False)
        assert s.pick_ip(A, ["2", "1"]) == "1"

    def test_dns_answers_that_always_change_do_not_accumulate_in_memory(self) -> None:
        s = states()
        for n in range(1000):
            s.pick_ip(A, [f"10.0.{n // 256}.{n % 256}"])
        assert len(s.state(A).tried) < 5


def test_an_address_state_is_deleted_when_metadata_has_lacked_the_address_for_long_enough() -> None:
    s, gone = states(), list[Address]()
    s.on_forgotten.append(gone.append)
    for address in (A, B):
        s.state(address).asked()
    s.forget([A], 100.0, after=60.0)
    s.forget([A], 159.0, after=60.0)
    assert gone == []
    s.forget([A], 160.0, after=60.0)
    assert (gone, s.find(B), [one.address for one in s.all()]) == ([B], None, [A])
    assert s.former.sent == 1


def test_the_state_of_an_address_with_a_running_backoff_is_not_deleted() -> None:
    """A connection attempt, or metadata with the address, restarts the time until deletion."""
    s = states(maximum=1000.0)
    for _ in range(12):
        until = s.failed(A, 0.0, None, connecting=True)
    s.forget([], 1.0, after=0.5)
    s.forget([], until - 1.0, after=0.5)
    assert s.state(A).failures == 12
    s.forget([], until, after=60.0)
    s.forget([A], until + 59.0, after=60.0)  # metadata contains the address again
    s.forget([], until + 61.0, after=60.0)
    assert s.state(A).failures == 12
    s.dialling(s.state(A), until + 100.0)
    s.forget([], until + 200.0, after=60.0)
    assert s.state(A).failures == 12


def test_the_state_of_a_new_address_has_its_initial_values() -> None:
    one = states().state(A)
    assert {name: getattr(one, name) for name in one.__slots__ if name != "latency"} == {
        "address": A, "answered": 0, "api_versions": 5, "api_versions_answered": -1,
        "backoff_until": -math.inf, "dial_failed": False, "dialling": 0, "failures": 0,
        "failures_before_proof": 0, "heard_at": -math.inf, "last_dial": -math.inf,
        "last_error": None, "last_error_at": -math.inf, "last_ip": None, "numeric": False,
        "proved_at": -math.inf, "sent": 0, "setup_failures": 0, "setup_timeout": 0.0,
        "stepped_down": False, "stepped_up": False, "suspicion": "", "through": None,
        "tried": [], "unknown_since": None,
    }  # fmt: skip
    assert states().standing(A) == (False, False)
    assert states().backoff_left(A, 0.0) == 0.0
    assert states().proved_anywhere is False
    assert states(base=0.3).base == 0.3


@pytest.mark.parametrize(
    ("host", "numeric"),
    [("10.0.0.1", True), ("::1", True), ("b1.example.com", False), ("10.0.0.1a", False)],
)
def test_an_ip_address_needs_no_dns_lookup(host: str, numeric: bool) -> None:
    assert states().state(Address(host, 9092)).numeric is numeric


def test_an_address_state_contains_the_last_ip_and_receive_time_and_suspected_cause() -> None:
    one = states().state(A)
    one.opens_to("10.0.0.1")
    one.heard(7.0)
    one.suspect_of("tls")
    assert (one.last_ip, one.heard_at, one.suspicion) == ("10.0.0.1", 7.0, "tls")


def test_an_address_state_contains_the_times_of_the_last_attempt_and_success() -> None:
    s = states()
    s.dialling(s.state(A), 3.0)
    s.proved(A, 4.0)
    assert (s.state(A).last_dial, s.state(A).proved_at) == (3.0, 4.0)


def test_the_latencies_of_ended_connections_are_kept() -> None:
    measured = Sampled()
    measured.record(0.25, 1.0)
    s = states()
    s.state(A).connection_ended(measured, 1.0)
    assert (s.state(A).latency.count, s.state(A).latency.total) == (1, 0.25)


def test_the_request_counters_of_deleted_addresses_are_added_to_a_total() -> None:
    s = states()
    for times, address in enumerate((A, B), start=2):
        for _ in range(times):
            s.state(address).asked()
            s.state(address).answers()
    assert (s.state(A).sent, s.state(B).answered) == (2, 3)
    s.forget([], 1.0, after=0.0)
    s.forget([], 2.0, after=0.0)
    assert (s.former.sent, s.former.answered) == (5, 5)
    assert s.former.address == Address("", 0)


def test_the_state_of_an_address_with_pending_connection_attempts_is_not_deleted() -> None:
    s = states()
    for _ in range(3):
        s.dialling(s.state(A), 0.0)
    s.state(A).settled()
    assert s.state(A).dialling == 2
    s.forget([], 10.0, after=0.0)
    s.forget([], 20.0, after=0.0)
    assert s.find(A) is not None
    s.state(A).settled()
    s.state(A).settled()
    s.forget([], 30.0, after=0.0)
    s.forget([], 40.0, after=0.0)
    assert s.find(A) is None


def test_an_address_state_can_be_deleted_as_soon_as_its_backoff_ends() -> None:
    s = states()
    until = s.failed(A, 0.0, None, connecting=True)
    s.forget([], until, after=0.0)
    s.forget([], until, after=0.0)
    assert s.find(A) is None


def test_after_all_ips_were_tried_the_most_recently_used_ip_is_not_tried_first() -> None:
    s, ips = states(), ["1", "2"]
    for _ in ips:
        s.pick_ip(A, ips)
    s.state(A).opens_to("1")
    assert s.pick_ip(A, ips) == "2"
    assert s.pick_ip(B, ["1"]) == s.pick_ip(B, ["1"]) == "1"
    t = states()
    for _ in range(3):
        t.pick_ip(A, ["1", "2", "3"])
    t.state(A).opens_to("2")
    assert [t.pick_ip(A, ["1", "2", "3"]) for _ in ips] == ["1", "2"]


def test_other_ips_remain_to_be_tried_until_each_has_been_tried() -> None:
    s, ips = states(), ["1", "2"]
    assert s.others_wait(A, ips)
    s.pick_ip(A, ips)
    assert s.others_wait(A, ips)
    s.failed(A, 0.0, None, connecting=True)
    assert s.others_wait(A, ips)
    s.failed(A, 0.0, None, connecting=True)
    assert not s.others_wait(A, ips)
    for _ in ips:
        s.pick_ip(B, ips)
    assert not s.others_wait(B, ips)


def test_a_proxy_is_kept_until_all_ips_of_the_broker_failed_through_it() -> None:
    s, ips, proxies = states(), ["1", "2"], ["p", "q", "r"]
    assert s.pick_proxy(A, ips, proxies) == s.pick_proxy(A, ips, proxies) == "p"
    s.failed(A, 0.0, None, connecting=True)
    assert s.pick_proxy(A, ips, proxies) == "p"
    s.failed(A, 0.0, None, connecting=True)
    assert s.pick_proxy(A, ips, proxies) == "q"
    assert s.pick_proxy(A, ips, proxies) == "r"
    assert s.pick_proxy(A, ips, proxies) == "p"
    assert s.state(A).through == "p"
    assert s.pick_proxy(A, ips, ["x"]) == "x"


@pytest.mark.parametrize("end", ["failed", "closed"])
def test_if_a_connection_ended_before_its_ip_was_known_no_ip_counts_as_tried(end: str) -> None:
    s = states()
    if end == "closed":
        s.closed(A, 0.0)
    else:
        s.failed(A, 0.0, None, connecting=True)
        s.failed(A, 0.0, None, connecting=False)
    assert s.state(A).tried == []
    assert s.state(A).setup_failures == 0


def test_each_version_of_api_versions_requests_is_tried_once_before_a_failure_counts() -> None:
    s = states()
    steps = []
    for _ in range(5):
        asked = s.state(A).api_versions
        steps.append((asked, s.step_down(A, asked)))
    assert steps == [(5, True), (4, True), (3, True), (0, False), (5, False)]
    assert s.state(A).stepped_down
    s.state(A).stepped_down = False
    assert (s.step_down(A, 5), s.state(A).api_versions) == (True, 4)
    assert (s.step_down(A, 0), s.state(A).api_versions) == (
        True,
        4,
    )  # version 0 is no longer current: no change


def test_an_api_versions_request_version_that_a_broker_answered_is_not_lowered() -> None:
    s = states()
    s.api_versions_known(A, 3, 3)
    assert (s.state(A).api_versions, s.state(A).api_versions_answered) == (3, 3)
    assert not s.step_down(A, 3)
    assert s.state(A).api_versions == 3
    s.api_versions_known(A, 0, 0)
    assert s.state(A).api_versions_answered == 3


def test_api_versions_requests_never_use_a_lower_version_than_other_brokers_answered() -> None:
    s = states()
    s.api_versions_known(B, 4, 4)
    assert s.step_down(A, 5)
    assert not s.step_down(A, 4)
    s.api_versions_known(B, 3, 3)
    t = states()
    t.api_versions_known(B, 4, 4)
    assert not t.step_down(A, 4)  # version 4 isn't lowered: B answered it
    assert not t.step_down(A, 3)


def test_a_newer_version_of_api_versions_requests_is_tried_once() -> None:
    s = states()
    s.step_down(A, 5)
    s.step_down(A, 4)
    for newest in (4, 9):
        s.api_versions_known(A, 3, newest)
        assert (s.state(A).stepped_up, s.state(A).api_versions) == (True, 4)
    t = states()
    t.api_versions_known(A, 4, 9)
    assert t.state(A).api_versions == 5  # the client knows no newer version
    u = states()
    for newest in (3, 4):
        u.api_versions_known(A, 3, newest)
        assert u.state(A).api_versions == newest


def test_a_connection_loss_that_is_no_failure_stores_its_error_but_starts_no_backoff() -> None:
    s, error = states(), OSError("reset")
    s.excused(A, 3.0, error)
    one = s.state(A)
    assert (one.last_error, one.last_error_at, one.failures) == (error, 3.0, 0)
    assert s.backoff_left(A, 3.0) == 0.0


def test_a_successful_connection_clears_backoff_and_last_error() -> None:
    s = states()
    s.failed(A, 0.0, OSError("reset"), connecting=True)
    s.state(A).suspect_of("tls")
    s.proved(A, 2.0)
    one = s.state(A)
    assert (one.backoff_until, one.suspicion, one.last_error) == (-math.inf, "", None)
    assert s.proved_anywhere is True


def test_a_successful_connection_to_a_wrong_cluster_does_not_clear_earlier_failures() -> None:
    s = states()
    for _ in range(3):
        s.failed(A, 0.0, None, connecting=True)
    s.proved(A, 1.0)
    s.disproved(A)
    assert s.state(A).failures == 3
    s.proved(B, 1.0)
    s.failed(B, 2.0, None, connecting=True)
    s.disproved(B)
    assert s.state(B).failures == 1
