"""`make soak MINUTES=30`, `make soak-hour`: random faults of real brokers and of client processes.

Long soaks have rounds, each with a cluster, a history and a judgement: the records of two hours
take too long to judge at once, and Kafka itself can lose a group permanently, which ends a round.
Progress is printed; the report is a page with a picture and a JSON file, and the clients' log is
beside it. The exit status is 0 if nothing was lost, duplicated or out of order in any round, no
process grew faster than its bounds, and a run of 15 minutes or more hit each kind of fault and
event; otherwise 1.
"""

import argparse
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # to import `tests.soak`

from tests.soak import page  # noqa: E402
from tests.soak.coverage import missed  # noqa: E402
from tests.soak.soak import Plan, Report, as_dict, run  # noqa: E402
from tests.soak.troubles import MORE_TROUBLES, TROUBLES  # noqa: E402

SHORTEST = 60.0
"""Minimum duration in seconds of each round after the first: a shorter round judges too little."""


def soak(plan: Plan, seconds: float, path: Path) -> Iterator[Report]:
    """Run rounds until the faults have lasted this many seconds, or a round failed."""
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


def document(rounds: list[Report]) -> dict[str, Any]:
    """Return the JSON document of all rounds so far."""
    coverage = sum((Counter(report.coverage) for report in rounds), Counter[str]())
    counts = {kind: coverage[kind] for report in rounds for kind in report.coverage}
    missing = missed(counts, sum(report.trouble_seconds for report in rounds))
    return {
        "ok": not missing and all(report.ok for report in rounds),
        "coverage": counts,
        "missed": missing,
        "rounds": [as_dict(report) for report in rounds],
    }


def arguments() -> argparse.Namespace:
    """Return the parsed arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--round-minutes", type=float, default=30.0, help="of one cluster, at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rate", type=float, default=60.0, help="records per second")
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="version of the brokers")
    parser.add_argument(
        "--protocols", nargs="+", default=["classic", "consumer"], help="group protocols"
    )
    every = (*TROUBLES, *MORE_TROUBLES)
    parser.add_argument(
        "--troubles", nargs="+", default=list(every), choices=set(every), help="faults of brokers"
    )
    parser.add_argument("--members", type=int, default=2, help="of each chain")
    parser.add_argument("--readers", type=int, default=2, help="of each group that only reads")
    parser.add_argument(
        "--asyncio", type=int, default=1, metavar="N",
        help="number of additional members of each chain and group that are tasks of one event "
        "loop, where a second producer sends half of the records; 0: none",
    )  # fmt: skip
    parser.add_argument(
        "--secured",
        action="store_true",
        help="brokers require TLS and a password, again every 10 s",
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak.json")
    return parser.parse_args()


def main() -> None:
    """Run the soak that the command line describes."""
    chosen = arguments()
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
    title = f"Soak of {chosen.minutes:g} minutes on Kafka {plan.kafka}, seed {chosen.seed}"
    print(title, flush=True)
    rounds: list[Report] = []
    html = chosen.json.with_suffix(".html")
    for report in soak(plan, chosen.minutes * 60, chosen.json):
        rounds.append(report)
        found = document(rounds)
        text = json.dumps(found, indent=1)
        chosen.json.write_text(text + "\n")  # after each round, in case the next one is interrupted
        page.write(html, title, found, [one.course for one in rounds])
    print(text)
    print(f"{'nothing lost, duplicated or out of order' if found['ok'] else 'FAILED'}: {html}")
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
