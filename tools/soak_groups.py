"""`make soak-groups`: members of real groups under SIGSTOP, and topics deleted and recreated.

Members are programs of their own that hold records while they are stopped for longer than their
sessions, and commit them when they wake; topics are recreated under members that hold records of
the old ones. Progress goes to the screen, the report to a JSON file, what members were handed to a
folder beside it. The exit status is 0 when nothing was lost and no committed offset went back or
came from another topic, 1 otherwise.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # what runs is also the tests' own

from tests.soak import group_soak, mixed_soak  # noqa: E402


def main() -> None:
    """Run as long as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=15.0,
        help="on each version of Kafka, and some minutes more to start and to finish",
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument(
        "--kafka", nargs="+", default=[DEFAULT_VERSION, "3.9.2"], help="versions of the brokers"
    )
    parser.add_argument("--mixed", action="store_true", help="with members of other clients")
    parser.add_argument("--kinds", nargs="+", help="only these groups, by protocol or assignor")
    parser.add_argument("--members", type=int, default=3, help="of each group, without --mixed")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak-groups.json")
    chosen = parser.parse_args()
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    reports: list[str] = []
    failed = False
    for version in chosen.kafka:
        print(f"{chosen.minutes:g} minutes on Kafka {version}, seed {chosen.seed}", flush=True)
        given: dict[str, Any] = {
            "seconds": chosen.minutes * 60,
            "seed": chosen.seed,
            "kafka": version,
            "folder": chosen.json.with_suffix("") / version,
        }
        if chosen.kinds:
            given["kinds"] = tuple(chosen.kinds)
        if chosen.mixed:
            mixed = mixed_soak.run(mixed_soak.MixedPlan(**given), say)
            ok, text = mixed.ok, mixed_soak.as_json(mixed)
        else:
            plan = group_soak.GroupPlan(**given, members=chosen.members)
            report = group_soak.run(plan, say)
            ok, text = report.ok, group_soak.as_json(report)
        print(text, flush=True)
        reports.append(text)
        failed = failed or not ok
        chosen.json.write_text("[" + ",\n".join(reports) + "]\n")
    print(f"{'FAILED' if failed else 'no record lost, no offset moved back'}: {chosen.json}")
    sys.exit(1 if failed else 0)


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
