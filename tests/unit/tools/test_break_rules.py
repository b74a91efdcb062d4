"""`make broken-rules`: its table of mutations is complete and up to date, its verdicts right."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).resolve().parents[3]
TOOL = load_tool("break_rules")
MUTATIONS = TOOL.mutations()
MOST = 3
"""Maximum number of mutations per rule."""
UNSEEN = {
    ("R-RB-4", "kip_144/a_close_with_requests_in_flight_is_a_failure"),
    ("R-CS-8", "kip_144/leaders_connect_once_a_silent_broker_responds"),
    ("R-RT-1", "kip_580/a_missing_topic_is_requested_with_backoff"),
    ("R-RT-1", "kip_580/broker_api_versions_follow_a_broker_that_moves"),
    ("R-RT-3", "kip_580/console_producer_stops_after_the_maximum_retries"),
    ("R-BO-3", "kip_580/metadata_rounds_back_off"),
    ("R-RB-7", "kip_899/an_unanswered_outage_costs_few_connection_attempts"),
    ("R-RB-4", "kip_899/a_rebootstrap_keeps_the_backoff"),
    ("R-RB-2", "kip_899/a_tiny_reconnect_max_does_not_hide_the_outage"),
    ("R-RB-2", "kip_899/all_brokers_replaced_unanswered"),
    ("R-RB-2", "kip_899/all_brokers_replaced_refused"),
    ("R-RT-1", "kip_899/error_129_of_an_admin_call"),
    ("R-RB-4", "kip_899/error_129_of_metadata"),
    ("R-MD-3", "kip_899/one_outage_causes_one_rebootstrap"),
    ("R-RB-4", "kip_899/a_rebootstrap_keeps_the_cluster_id"),
    ("R-RB-4", "kip_899/the_rebootstrap_timer_fires_once_per_outage"),
    ("R-RB-3", "kip_899/one_responding_broker_prevents_a_rebootstrap"),
    ("R-MD-5", "metadata/an_unreachable_broker_stays_in_the_metadata"),
    ("R-MD-7", "metadata/a_new_client_requests_metadata_at_once"),
    ("R-RB-5", "metadata/a_hint_replaces_the_first_request"),
    ("R-RT-2", "metadata/after_close_calls_fail_at_once"),
    ("R-RT-2", "metadata/closing_during_an_outage_ends_all_calls"),
    ("R-MD-2", "metadata/an_address_in_backoff_is_skipped"),
    ("R-MD-1", "metadata/bootstrap_addresses_are_no_brokers"),
    ("R-BO-3", "metadata/refreshes_without_news_are_spaced"),
    ("R-MD-2", "metadata/the_broker_tried_longest_ago_is_tried_first"),
}
"""Pairs of a rule and a case that names it, which no mutation of the rule makes fail."""


@pytest.mark.slow
def test_every_text_that_a_mutation_replaces_exists_in_the_sources() -> None:
    gone = []
    for mutation in (*MUTATIONS, *TOOL.mutations(TOOL.SEARCHED)):
        try:
            for path, mutant in mutation.mutants(TOOL.SOURCES):
                assert mutant != path.read_text(), mutation.name
                compile(mutant, path.name, "exec")
        except LookupError as error:
            gone.append(str(error))
    assert gone == [], "adapt these texts in tests/spec/…mutations.json"


def test_every_test_that_a_mutation_names_exists() -> None:
    for mutation in MUTATIONS:
        assert mutation.fails, mutation.name
        for name in mutation.fails:
            path, _, inside = name.partition("::")
            if not inside and not path.endswith(".py"):
                path = f"tests/spec/{path}.json"
            assert (ROOT / path).is_file(), name
            test = inside.partition("[")[0]
            assert f"def {test}" in (ROOT / path).read_text() or not test, name


def test_every_rule_has_one_to_three_mutations() -> None:
    rules = json.loads((ROOT / "tests/spec/rules.json").read_text())
    count = {m.rule: sum(one.rule == m.rule for one in MUTATIONS) for m in MUTATIONS}
    assert set(rules) - set(count) == set()
    others = set(count) - set(rules)
    assert {o for o in others if not re.fullmatch(r"KIP-\d+|TLS|SCRAM|SECRETS", o)} == set()
    assert {rule for rule, some in count.items() if some > MOST} == set()


def test_each_specification_case_fails_for_a_mutation_of_each_of_its_rules() -> None:
    named = {
        (rule, f"{path.parent.name}/{path.stem}")
        for path in (ROOT / "tests/spec").glob("*/*.json")
        for rule in json.loads(path.read_text())["rules"]
    }
    seen = {(m.rule, name) for m in MUTATIONS for name in m.fails if ".py" not in name}
    assert named - seen == UNSEEN
    assert seen <= named


def test_a_mutation_whose_text_to_replace_is_missing_is_an_error() -> None:
    mutation = TOOL.Mutation("R", "it", {"common/backoff.py": {"gone": ""}}, ())
    with pytest.raises(LookupError, match="backoff.py doesn't contain 'gone'"):
        list(mutation.mutants(TOOL.SOURCES))


@pytest.mark.slow
def test_a_mutation_without_a_failing_test_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = tmp_path / "src" / "odradek"
    shutil.copytree(TOOL.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    before = (sources / "common/backoff.py").read_text()
    test = tmp_path / "test_it.py"
    test.write_text(
        "from odradek.common.backoff import JITTER\n\n"
        "def test_rule():\n    assert JITTER == 0.2\n\n"
        "def test_nothing():\n    assert True\n"
    )
    path = os.path.relpath(test, ROOT)
    changes = {"common/backoff.py": {"JITTER = 0.2": "JITTER = 1"}}
    for names, noticed in ((("test_rule",), True), (("test_rule", "test_nothing"), False)):
        fails = tuple(f"{path}::{name}" for name in names)
        assert TOOL.try_one(TOOL.Mutation("R", "it", changes, fails), sources, tmp_path) is noticed
    said = capsys.readouterr().out
    assert "test_rule failed" in said
    assert f"it: SURVIVED in {path}::test_nothing" in said
    assert (sources / "common/backoff.py").read_text() == before


def test_the_mutations_are_listed_and_unknown_arguments_are_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["break_rules.py", "--list"])
    assert TOOL.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MUTATIONS)
    monkeypatch.setattr(sys, "argv", ["break_rules.py", "nosuchword"])
    with pytest.raises(SystemExit) as caught:
        TOOL.main()
    assert caught.value.code == 2
