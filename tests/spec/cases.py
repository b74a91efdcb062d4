"""Reads case files and runs those with a timeline, for each client that they are about.

    rules    the requirement ids it shows (`rules.json`)
    vectors  the test vectors it pins, if any (`vectors.json`)
    shows    one sentence
    config   of the client, where it isn't only "front:9092"; `seeds` (in a whole run: 5)
    client   which one; without it the case holds for producer, consumer and admin alike
    command  instead of both, the command line of a console tool
    variants run it once for each of these: keys that replace the case's (`config` is merged)
    sizes    run it once for each of these numbers, which is written for "N" in the whole case
    cluster  brokers and topics at the start (see `brokers`); a number n stands for n brokers, from
             "b1:9092" on, each of which leads one partition of topic "t"
    modes, names, hint    the rest of the world at the start (see `world`); without modes all is up
    first    null where nobody needs topic "t" at 0; else that is the first step, a call `first`
    steps    what happens, each with its time `at` (seconds) and what to `do`
    until    when the run ends
    expect   what has to hold afterwards, for every seed; times in seconds, ranges are inclusive

A new case is a file, not code; what comes in numbers has short forms (`ranges`). Every key that
isn't known is refused, so that a misspelt expectation can't pass by being ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spec.commands import client_of
from tests.spec.ranges import numbered, written_out
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
    """All files with a timeline."""
    return [p for p in sorted(HERE.glob("*/*.json")) if "until" in load(p)]


def cases(folder: str) -> list[Any]:
    """The files of a folder, as pytest parameters by name."""
    return sorted((HERE / folder).glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """What a file says, as it is written there."""
    case: dict[str, Any] = json.loads(path.read_text())
    assert case.get("rules"), f"{path.name} names no rule"
    assert case.get("shows"), f"{path.name} doesn't say what it shows"
    return case


def run_case(path: Path) -> None:
    """Run a scripted case, in all its variants, for all its clients, under all its seeds."""
    for case in variants(load(path)):
        for client in clients(case):
            _run_seeds({**case, "client": client})


def variants(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The case once for each variant and size, with nothing left out and no short forms."""
    if "command" in case:
        case = {**case, **client_of(case["command"])}
    else:
        case = {**case, "config": {"bootstrap.servers": BOOTSTRAP, **case.get("config", {})}}
    for variant in case.get("variants", [{}]):
        whole = {**case, **variant, "config": {**case["config"], **variant.get("config", {})}}
        assert not set(whole) - KEYS, f"unknown keys: {set(whole) - KEYS}"
        for size in case.get("sizes", [0]):
            yield _filled_in(numbered(whole, size, "N") if size else whole)


def _filled_in(case: dict[str, Any]) -> dict[str, Any]:
    """A case with what goes without saying, and no short forms."""
    if isinstance(count := case.get("cluster"), int):
        brokers, leaders = {f"[1..{count}]": "b#:9092"}, [f"[1..{count}]"]
        case = {**case, "cluster": {"brokers": brokers, "topics": {"t": leaders}}}
    needed = [] if case.get("first", "t") is None else [FIRST]
    whole: dict[str, Any] = written_out({"expect": [], **case})
    if "cluster" in case and "command" not in case:
        where = [BOOTSTRAP, *whole["cluster"]["brokers"].values()]
        whole.setdefault("modes", dict.fromkeys(where, "up"))
    return {**whole, "steps": needed + whole.get("steps", [])}


def clients(case: dict[str, Any]) -> tuple[str, ...]:
    """Whom a case is about: the one that it names, or all that can do what happens in it."""
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
