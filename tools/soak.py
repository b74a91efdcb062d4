"""`make soak MINUTES=30`: random trouble for real brokers, and what it did to records.

Long soaks go in rounds, each with a cluster, records and a judgement of its own: what two hours
write takes too long to judge at once, and Kafka itself can lose a group for good (a round ends
there). Progress goes to the screen, the report to a JSON file, what the clients log beside it. The
exit status is 0 when nothing was lost, doubled or out of order in any round, 1 otherwise.
"""

import argparse
import json
import logging
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # what runs is also the tests' own

from tests.soak.soak import TROUBLES, Plan, Report, as_dict, run  # noqa: E402

SHORTEST = 60.0
"""Seconds of a round after the first one: in less there is nothing to be judged."""


def soak(plan: Plan, seconds: float, path: Path) -> Iterator[Report]:
    """Round after round until there were so many seconds of trouble, or one failed."""
    left, number = seconds, 0
    while not number or left >= SHORTEST:
        round_ = replace(plan, seconds=min(plan.seconds, left), seed=plan.seed + number)
        print(f"round {number}, seed {round_.seed}, {round_.seconds / 60:g} minutes", flush=True)
        keep = path.with_stem(f"{path.stem}-{number}")
        report = run(round_, lambda line: print(line, flush=True), keep)
        yield report
        if not report.ok:
            return
        left -= report.trouble_seconds
        number += 1


def main() -> None:
    """Run as long as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--round-minutes", type=float, default=30.0, help="of one cluster, at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rate", type=float, default=150.0, help="records a second")
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="version of the brokers")
    parser.add_argument(
        "--protocols", nargs="+", default=["classic", "consumer"], help="group protocols"
    )
    parser.add_argument("--troubles", nargs="+", default=list(TROUBLES), choices=set(TROUBLES))
    parser.add_argument("--members", type=int, default=2, help="of each chain")
    parser.add_argument("--readers", type=int, default=4, help="of each group that only reads")
    parser.add_argument(
        "--asyncio", type=int, default=1, metavar="N",
        help="so many more of each are tasks of one event loop, and half of the records come from "
        "a producer there; 0: none",
    )  # fmt: skip
    parser.add_argument(
        "--secured", action="store_true", help="brokers ask for TLS and a password, every 10 s anew"
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak.json")
    chosen = parser.parse_args()
    plan = Plan(
        seconds=chosen.round_minutes * 60,
        seed=chosen.seed,
        rate=chosen.rate,
        protocols=tuple(chosen.protocols),
        troubles=tuple(chosen.troubles),
        members=chosen.members,
        readers=chosen.readers,
        asyncio=chosen.asyncio,
        kafka=chosen.kafka,
        secured=chosen.secured,
    )
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=chosen.json.with_suffix(".log"), filemode="w", format="%(asctime)s %(message)s"
    )
    print(f"soak of {chosen.minutes:g} minutes, seed {chosen.seed}, Kafka {plan.kafka}", flush=True)
    rounds: list[Report] = []
    for report in soak(plan, chosen.minutes * 60, chosen.json):
        rounds.append(report)
        ok = all(report.ok for report in rounds)
        text = json.dumps({"ok": ok, "rounds": [as_dict(report) for report in rounds]}, indent=1)
        chosen.json.write_text(text + "\n")  # each time: what was judged outlives an interruption
    print(text)
    print(f"{'nothing lost, doubled or out of order' if ok else 'FAILED'}: {chosen.json}")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
