"""The breakages of the house's own rules: front door, pages, facades, simulated brokers' limits."""

from __future__ import annotations

from rules_to_break import Breakage, broken

PAGES = "tests/unit/test_pages.py"
FRONT = "tests/unit/test_public_names.py"
HELP = "tests/unit/test_help.py"
FACADES = "tests/unit/test_house_of_facades.py"
SURVIVES = "tests/integration/test_fake_cluster.py::test_it_survives"

HOUSE_BREAKAGES: tuple[Breakage, ...] = (
    # The front door
    broken(
        "an error that users catch isn't importable",
        "front door",
        "api/public_names.py",
        " LogTruncationError",
        "",
        f"{FRONT}::test_every_error_is_listed",
    ),
    broken(
        "the stub lets any name through",
        "front door",
        "__init__.pyi",
        "__version__: str\n",
        "__version__: str\ndef __getattr__(name: str) -> object: ...\n",
        f"{FRONT}::test_the_stub_has_these_names_and_no_others",
    ),
    broken(
        "an option's type takes anything",
        "front door",
        "api/client_options.py",
        "    linger_ms: int\n",
        "    linger_ms: object\n",
        f"{FRONT}::test_the_stub_and_the_options_types_are_what_the_tool_writes",
    ),
    # Pages
    broken(
        "a module names a rule that nobody defined",
        "house",
        "runtime/hosts/one_reader.py",
        "HO-3",
        "XX-3",
        f"{PAGES}::test_every_rule_that_is_named_is_defined",
    ),
    broken(
        "a rule has no module that names it",
        "house",
        "runtime/hosts/one_reader.py",
        "R-HO-3",
        "the rule",
        f"{PAGES}::test_every_rule_has_a_home",
    ),
    broken(
        "the page of rules lacks a module that keeps one",
        "house",
        "network/dial_governor.py",
        "R-CS-8",
        "the rule",
        f"{PAGES}::test_the_page_of_rules_is_up_to_date",
    ),
    broken(
        "a state machine isn't the one that is drawn",
        "house",
        "network/connection_state.py",
        "    (_S.CHECKING_API_VERSIONS, _E.AUTHENTICATION_BEGUN): _S.AUTHENTICATING,\n",
        "",
        f"{PAGES}::test_the_diagrams_are_those_of_the_transition_tables",
    ),
    broken(
        "help() shows what only futures call",
        "front door",
        "api/producer.py",
        "def _watched(",
        "def watched(",
        f"{HELP}::test_help_has_what_users_call_and_no_helpers",
    ),
    broken(
        "help() names a rule of the house",
        "front door",
        "api/base.py",
        "Have each event of this client",
        "Have each event (R-EV-1) of this client",
        f"{HELP}::test_help_names_no_rule_of_the_house",
    ),
    broken(
        "an example says what doesn't happen",
        "front door",
        "api/consumer.py",
        "    1 b'LGA'",
        "    1 b'EWR'",
        f"{HELP}::test_examples_do_what_they_say",
    ),
    # Facades
    broken(
        "a facade decides something",
        "house",
        "api/consumer.py",
        "        self._calls.handed_over()\n        return found or []",
        "        self._calls.handed_over()\n        found = found or []\n        return found",
        f"{FACADES}::test_facades_decide_nothing",
    ),
    broken(
        "a facade writes the engine's state",
        "house",
        "api/consumer.py",
        "        self._calls.wakeup()\n",
        "        self._engine.group.asked_at = 0.0\n",
        f"{FACADES}::test_facades_store_nothing_in_what_is_not_theirs",
    ),
    broken(
        "a caller's half reads a clock",
        "house",
        "clients/calls/producer_calls.py",
        "        now = yield START\n        deadline: float | None = None",
        "        now = self.host.now()\n        yield START\n        deadline: float | None = None",
        f"{FACADES}::test_callers_halves_know_neither_clocks_nor_threads",
    ),
    # A simulated cluster on sockets, and hostile bytes
    broken(
        "simulated brokers keep all that is unfinished",
        "testing",
        "testing/loopback.py",
        "        while total > HELD_BYTES:",
        "        while total > HELD_BYTES << 10:",
        f"{SURVIVES}[half_frames]",
    ),
    broken(
        "a simulated cluster makes as many partitions as anybody asks for",
        "testing",
        "testing/memory_limits.py",
        "        return present + wanted <= MOST_PARTITIONS",
        "        return True",
        f"{SURVIVES}[many_topics]",
    ),
    broken(
        "a simulated cluster keeps all records",
        "testing",
        "testing/memory_limits.py",
        "        while total > self.retention_bytes:",
        "        while total > self.retention_bytes << 10:",
        "tests/unit/testing/test_fake_cluster.py::test_the_oldest_records_go",
    ),
)
