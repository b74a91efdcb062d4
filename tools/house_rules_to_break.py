"""The breakages of the house's own rules: front door, pages, facades, simulated brokers' limits."""

from __future__ import annotations

from rules_to_break import Breakage, Patch, broken

PAGES = "tests/unit/test_pages.py"
FRONT = "tests/unit/test_public_names.py"
HELP = "tests/unit/test_help.py"
FACADES = "tests/unit/test_house_of_facades.py"
HOUSE = "tests/unit/test_house.py"
COMPLETED = "clients/consumer/fetching/completed_fetch.py"
OWNERS = "tests/unit/test_house_owners.py"
IN_TEXTS = "tests/unit/common/test_option_texts.py"
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
    Breakage(
        "a rule has no module that names it",
        "house",
        (
            Patch("runtime/hosts/one_reader.py", "R-HO-3", "the rule"),
            Patch("runtime/hosts/one_task.py", "R-HO-3", "the rule"),
        ),
        (f"{PAGES}::test_every_rule_has_a_home",),
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
        "handed_over()\n        return found or []",
        "handed_over()\n        found = found or []\n        return found",
        f"{FACADES}::test_facades_decide_nothing",
    ),
    broken(
        "a facade writes the engine's state",
        "house",
        "api/consumer_state.py",
        "        self._calls.wakeup()\n",
        "        self._engine.group.asked_at = 0.0\n",
        f"{FACADES}::test_facades_store_nothing_in_what_is_not_theirs",
    ),
    broken(
        "a caller's half reads a clock",
        "house",
        "clients/calls/producer_calls.py",
        "now = yield START\n        engine.metadata.use(name, now)",
        "now = self.host.now()\n        yield START\n        engine.metadata.use(name, now)",
        f"{FACADES}::test_callers_halves_know_neither_clocks_nor_threads",
    ),
    broken(
        "what is known already is asked for by a flow",
        "house",
        "api/group_consumer.py",
        " if known is None else known",
        "",
        "tests/unit/api/test_python_calls.py",
    ),
    # Sizes, names, what is dead
    broken(
        "a module is longer than can be read",
        "house",
        "common/outage.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n" + "# more\n" * 800,
        f"{HOUSE}::test_modules_are_short",
    ),
    broken(
        "a function is longer than can be read",
        "house",
        "common/outage.py",
        "    groups: dict[str, list[str]] = {}\n",
        "    groups: dict[str, list[str]] = {}\n" * 70,
        f"{HOUSE}::test_functions_are_short",
    ),
    broken(
        "two classes have one name",
        "house",
        "common/outage.py",
        "class Spacing:",
        "class EventLog:\n    pass\n\n\nclass Spacing:",
        f"{HOUSE}::test_one_name_is_one_class",
    ),
    broken(
        "a function is left that nobody calls",
        "house",
        "common/outage.py",
        "def plain(",
        "def never_" + "called() -> None:\n    pass\n\n\ndef plain(",  # the tools' words are uses
        f"{HOUSE}::test_nothing_is_dead",
    ),
    broken(
        "a module is left that nobody imports",
        "house",
        "common/config.py",
        "from odradek.common.security import settle_security\n",
        "settle_security = print\n",
        f"{HOUSE}::test_no_module_is_dead",
    ),
    broken(
        "a module names a machine's folder",
        "house",
        "common/outage.py",
        "What an outage is,",
        "/ro" + "ot/ has what an outage is,",
        f"{HOUSE}::test_nothing_committed_names_a_machine_or_a_registry",
    ),
    broken(
        "a room that decides reads a clock, and silences the linter",
        "house",
        "common/outage.py",
        "import math\n",
        "import math\nimport time  # noqa: TID251\n",
        f"{HOUSE}::test_nobody_silences_the_ban",
    ),
    broken(
        "importing the package loads TLS",
        "house",
        "__init__.py",
        "import importlib\n",
        "import importlib\nimport ssl\n",
        f"{HOUSE}::test_import_odradek_is_light",
    ),
    Breakage(
        "an exception to the rule of owners is no longer needed",
        "house",
        (
            Patch(COMPLETED, "state.consumed, state.consumed_epoch =", "_, _ ="),
            Patch(COMPLETED, "state.position, state.position_epoch =", "_, _ ="),
        ),
        (f"{OWNERS}::test_the_exceptions_are_needed",),
    ),
    broken(
        "a text names what is imported",
        "R-IN-2",
        "common/jaas.py",
        "import re\n",
        'import re\nfrom importlib import import_module\n\nre = import_module(str("re"))\n',
        "tests/unit/test_no_code_in_texts.py"
        "::test_only_constants_and_our_own_tables_name_what_is_imported",
    ),
    broken(
        "an object is read from bytes that could hold code",
        "R-IN-2",
        "common/jaas.py",
        "import re\n",
        "import pickle\nimport re\n",
        "tests/unit/test_no_code_in_texts.py"
        "::test_no_object_is_read_from_bytes_that_could_hold_code",
    ),
    # Options
    broken(
        "an option is in two groups",
        "house",
        "common/options.py",
        '    "Events": EVENT_OPTIONS,\n',
        '    "Events": (*EVENT_OPTIONS, *TRANSACTION_OPTIONS),\n',
        f"{IN_TEXTS}::test_each_option_is_in_one_group",
    ),
    broken(
        "an option that Java's clients have is gone",
        "house",
        "common/options.py",
        '    "Transactions": TRANSACTION_OPTIONS,\n',
        "",
        f"{IN_TEXTS}::test_what_others_have_is_an_option",
    ),
    # Help
    broken(
        "a method that users call isn't described",
        "front door",
        "api/consumer_state.py",
        '        """End a call that waits for records:',
        '        _ = """End a call that waits for records:',
        f"{HELP}::test_every_public_class_and_method_is_described",
    ),
    broken(
        "help() shows an argument that is the package's own",
        "front door",
        "api/consumer_state.py",
        "def wakeup(self)",
        "def wakeup(self, _quietly: bool = False)",
        f"{HELP}::test_no_argument_is_the_packages_own",
    ),
    broken(
        "an example is skipped",
        "front door",
        "api/consumer.py",
        '>>> with Consumer({"bootstrap.servers": "localhost:9092"}) as consumer:\n',
        '>>> with Consumer({"bootstrap.servers": "a:1"}) as consumer:  # doctest: +SKIP\n',
        f"{HELP}::test_there_are_examples_and_none_is_skipped",
    ),
    broken(
        "the version that brokers are told isn't the package's",
        "house",
        "network/handshake.py",
        'SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "0.2.0"',
        'SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "0.0.9"',
        f"{PAGES}::test_the_version_is_the_same_everywhere",
    ),
    broken(
        "an option is declared and checked, and nobody reads it",
        "house",
        "clients/client_engine.py",
        'max_idle=config["metadata.max.idle.ms"],',
        "max_idle=300.0,",
        "tests/unit/test_house_options.py::test_no_option_is_without_an_effect",
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
