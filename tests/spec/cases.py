"""Reads case files and runs those with a timeline, for each client that they are about.

    rules    the requirement ids it shows (`rules.json`)
    vectors  the test vectors it pins, if any (`vectors.json`)
    shows    one sentence
    config   of the client, where it isn't only "front:9092"; `seeds` (how often it is run, 5)
    client   which one; without it the case holds for producer, consumer and admin alike
    command  instead of both, the command line of a console tool
    variants run it once for each of these: keys that replace the case's (`config` is merged)
    modes, names, cluster, hint    the world at the start (see `world`); without modes all is up
    steps    what happens, each with its time `at` (seconds) and what to `do`
    until    when the run ends
    expect   what has to hold afterwards, for every seed; times in seconds, ranges are inclusive

A new case is a file, not code; what comes in numbers has short forms (`ranges`). Every key that
isn't known is refused, so that a misspelt expectation can't pass by being ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.spec.commands import client_of
from tests.spec.ranges import written_out
from tests.spec.script import Script

HERE = Path(__file__).parent
KEYS = {
    "rules", "vectors", "variants", "shows", "command", "config", "client", "seeds", "modes",
    "names", "cluster", "hint", "steps", "until", "expect",
}  # fmt: skip
CLIENTS = ("consumer", "producer", "admin")
BOOTSTRAP = "front:9092"
CONSUMERS_VERBS = {"assign", "poll", "offsets"}


def cases(folder: str) -> list[Any]:
    """The files of a folder, as pytest parameters by name."""
    return sorted((HERE / folder).glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = written_out(json.loads(path.read_text()))
    if "cluster" in case and "command" not in case:
        case["config"] = {"bootstrap.servers": BOOTSTRAP, **case.get("config", {})}
        where = [BOOTSTRAP, *case["cluster"]["brokers"].values()]
        case.setdefault("modes", dict.fromkeys(where, "up"))
    assert case.get("rules"), f"{path.name} names no rule"
    assert case.get("shows"), f"{path.name} doesn't say what it shows"
    return case


def run_case(path: Path) -> None:
    """Run a scripted case, in all its variants, for all its clients, under all its seeds."""
    case = load(path)
    assert not set(case) - KEYS, f"unknown keys: {set(case) - KEYS}"
    for variant in case.pop("variants", [{}]):
        assert not set(variant) - KEYS, f"unknown keys: {set(variant) - KEYS}"
        case.update(client_of(case["command"]) if "command" in case else {})
        config = {**case["config"], **variant.get("config", {})}
        whole = {**case, **variant, "config": config}
        for client in clients(whole):
            _run_seeds({**whole, "client": client})


def clients(case: dict[str, Any]) -> tuple[str, ...]:
    """Whom a case is about: the one that it names, or all that can do what happens in it."""
    if "client" in case:
        return (case["client"],)
    verbs = {step["do"] for step in case["steps"]}
    return ("consumer",) if verbs & CONSUMERS_VERBS or "hint" in case else CLIENTS


def _run_seeds(case: dict[str, Any]) -> None:
    assert case["expect"] or any(s["do"] == "look" for s in case["steps"]), "it can't fail"
    seeds = case.get("seeds", 5)
    seen: set[str] = set()
    for seed in range(seeds):
        try:
            Script(case, seed, seen, last=seed == seeds - 1).run()
        except AssertionError as error:
            where = f"{case['client']}, seed {seed}"
            raise AssertionError(f"{case['shows']} ({where}): {error}") from error
