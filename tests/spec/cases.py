"""Read case files and run those with a timeline, for each client that they apply to.

    rules    the requirement ids that the case tests (`rules.json`)
    vectors  the test vectors that it covers, if any (`vectors.json`)
    shows    one sentence: what the case tests
    config   configuration of the client, if it isn't only "front:9092"
    seeds    the number of random seeds (in a whole run; default 5)
    client   producer, consumer or admin; without it the case runs with all three
    command  instead of both, the command line of a console tool
    variants run the case once with each of these sets of keys, which replace the case's keys
             (`config` is merged)
    sizes    run the case once with each of these numbers in place of "N"
    cluster  brokers and topics at the start (see `brokers`); a number n means n brokers, from
             "b1:9092" on, each of which leads one partition of topic "t"
    modes, names, hint    the rest of the simulation (see `world`); default mode: up
    first    null if the client doesn't request topic "t" at 0; otherwise that request is the
             first step, with the name `first`
    steps    what happens, each with its time `at` (seconds) and an action, `do`
    until    when the run ends
    expect   what has to be true afterwards, for every seed; times in seconds, ranges inclusive

A new case is a file, not code; `ranges` has short forms for numbered names. An unknown key is an
error, so that a misspelt expectation isn't ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spec.commands import client_of
from tests.spec.ranges import expand, numbered
from tests.spec.script import Script
from tests.volume import part

HERE = Path(__file__).parent
KEYS = {
    "rules", "vectors", "variants", "sizes", "shows", "command", "config", "client", "seeds",
    "modes", "names", "cluster", "hint", "first", "steps", "until", "expect",
}  # fmt: skip
FIRST = {"at": 0, "do": "topic", "name": "t", "into": "first"}
CLIENTS = ("consumer", "producer", "admin")
BOOTSTRAP = "front:9092"
CONSUMERS_VERBS = {"assign", "poll", "offsets"}


def scripted() -> list[Path]:
    """Return all files with a timeline."""
    return [p for p in sorted(HERE.glob("*/*.json")) if "until" in load(p)]


def cases(folder: str) -> list[Any]:
    """Return the files of a folder, sorted by name."""
    return sorted((HERE / folder).glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """Return the content of a case file, without expanding its short forms."""
    case: dict[str, Any] = json.loads(path.read_text())
    assert case.get("rules"), f"{path.name} names no rule"
    assert case.get("shows"), f"{path.name} doesn't say what it shows"
    return case


def run_case(path: Path) -> None:
    """Run a scripted case: all its variants, clients and seeds."""
    for case in variants(load(path)):
        for client in clients(case):
            _run_seeds({**case, "client": client})


def variants(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the case once for each variant and size, with defaults and short forms expanded."""
    if "command" in case:
        case = {**case, **client_of(case["command"])}
    else:
        case = {**case, "config": {"bootstrap.servers": BOOTSTRAP, **case.get("config", {})}}
    for variant in case.get("variants", [{}]):
        whole = {**case, **variant, "config": {**case["config"], **variant.get("config", {})}}
        assert not set(whole) - KEYS, f"unknown keys: {set(whole) - KEYS}"
        for size in case.get("sizes", [0]):
            yield _with_defaults(numbered(whole, size, "N") if size else whole)


def _with_defaults(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with its defaults filled in and its short forms expanded."""
    if isinstance(count := case.get("cluster"), int):
        brokers, leaders = {f"[1..{count}]": "b#:9092"}, [f"[1..{count}]"]
        case = {**case, "cluster": {"brokers": brokers, "topics": {"t": leaders}}}
    needed = [] if case.get("first", "t") is None else [FIRST]
    whole: dict[str, Any] = expand({"expect": [], **case})
    if "cluster" in case and "command" not in case:
        where = [BOOTSTRAP, *whole["cluster"]["brokers"].values()]
        whole.setdefault("modes", dict.fromkeys(where, "up"))
    return {**whole, "steps": needed + whole.get("steps", [])}


def clients(case: dict[str, Any]) -> tuple[str, ...]:
    """Return the clients of a case: the one that it names, or all that support its steps."""
    if "client" in case:
        return (case["client"],)
    verbs = {step["do"] for step in case["steps"]}
    return ("consumer",) if verbs & CONSUMERS_VERBS or "hint" in case else CLIENTS


def _run_seeds(case: dict[str, Any]) -> None:
    assert case["expect"] or any(s["do"] == "look" for s in case["steps"]), "it can't fail"
    seeds = case.get("seeds", 5)
    if not any("distinct_first_dials" in expected for expected in case["expect"]):
        seeds = part(seeds)
    seen: set[str] = set()
    for seed in range(seeds):
        try:
            Script(case, seed, seen, last=seed == seeds - 1).run()
        except AssertionError as error:
            where = f"{case['client']}, seed {seed}"
            raise AssertionError(f"{case['shows']} ({where}): {error}") from error
