"""`make soak MINUTES=30`: random trouble for real brokers, and what it did to records.

Progress goes to the screen, the report to a JSON file, what the clients log beside it. The exit
status is 0 when nothing was lost, doubled or out of order, 1 otherwise.
"""

import argparse
import logging
import random
import sys
from pathlib import Path

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # what runs is also the tests' own

from tests.soak.soak import TROUBLES, Plan, as_json, run  # noqa: E402


def main() -> None:
    """Run as long as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rate", type=float, default=150.0, help="records a second")
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="version of the brokers")
    parser.add_argument(
        "--protocols", nargs="+", default=["classic", "consumer"], help="group protocols"
    )
    parser.add_argument("--troubles", nargs="+", default=list(TROUBLES), choices=set(TROUBLES))
    parser.add_argument("--members", type=int, default=2, help="of each chain")
    parser.add_argument("--readers", type=int, default=4, help="of each group that only reads")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak.json")
    chosen = parser.parse_args()
    plan = Plan(
        seconds=chosen.minutes * 60,
        seed=chosen.seed,
        rate=chosen.rate,
        protocols=tuple(chosen.protocols),
        troubles=tuple(chosen.troubles),
        members=chosen.members,
        readers=chosen.readers,
        kafka=chosen.kafka,
    )
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=chosen.json.with_suffix(".log"), filemode="w", format="%(asctime)s %(message)s"
    )
    print(f"soak of {chosen.minutes:g} minutes, seed {chosen.seed}, Kafka {plan.kafka}", flush=True)
    report = run(plan, lambda line: print(line, flush=True), chosen.json)
    chosen.json.write_text(as_json(report) + "\n")
    print(as_json(report))
    print(f"{'nothing lost, doubled or out of order' if report.ok else 'FAILED'}: {chosen.json}")
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
