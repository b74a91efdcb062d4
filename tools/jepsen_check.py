"""Compare our judge of histories with Jepsen's: `tools/jepsen_check.py FOLDER --class-path …`.

In: families and seeds of simulated schedules; a class path with Jepsen. Out: FOLDER has the
histories of these runs and damaged copies in Jepsen's form; a table says for each kind of damage
how many histories each judge rejects, and with which errors. The exit status is 1 if a judge
rejects a history without damage, or if ours accepts a damaged one; 2 if Java fails. Must not be
part of the tests: the class path isn't installed.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import History
from odradek.simulation.checkers.history_check import check
from odradek.simulation.checkers.history_edn import edn_lines
from odradek.simulation.runs.group_runs import run_of
from odradek.simulation.runs.random_schedules import random_schedule
from spoilt_histories import DAMAGES, Spoiler


class JavaError(Exception):
    """Java didn't start, or didn't judge all histories."""


SCRIPT = Path(__file__).resolve().with_suffix(".clj")
FAMILIES = ("plain", "hostile", "transactions", "groups", "read-process-write")
NONE = "none"


@dataclass(frozen=True)
class DamagedHistory:
    """One history and the anomalies that our judge found in it."""

    file: str
    run: str
    """Family, seed and cluster number of the run."""
    damage: str
    found: bool
    """Whether our judge reported an expected kind of anomaly; without damage, any anomaly."""
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class JepsenVerdict:
    """Errors that Jepsen's analysis found in one history."""

    errors: dict[str, int]
    allowed: dict[str, int]
    """Errors that Jepsen reports, but allows for Kafka, with their numbers."""


def runs(families: Iterable[str], seeds: Iterable[int]) -> Iterator[tuple[str, History]]:
    """Run the schedules and yield each cluster's history, with a name."""
    for family in families:
        for seed in seeds:
            schedule: Any = random_schedule(seed, short=False, family=family)  # type: ignore[arg-type]
            run: Any = run_of(schedule)
            run.play()
            for number, (history, undefined) in enumerate(run.histories):
                yield f"{family}-{seed}-{number}", defined(history, undefined)


def defined(history: History, undefined: Collection[TopicPartition]) -> History:
    """Return a copy of the history without partitions in which offsets were assigned twice."""
    copy = History.of_lines(history.lines())
    for one in copy.operations:
        one.writes = [write for write in one.writes if write.partition not in undefined]
        one.seen = {place: rows for place, rows in one.seen.items() if place not in undefined}
    return copy


def cases(
    folder: Path, name: str, history: History, per_damage: Counter[str]
) -> Iterator[DamagedHistory]:
    """Write a history, and a damaged copy for each kind of damage that is still needed."""
    yield _written(folder, name, NONE, history, frozenset())
    for damage, spoil in DAMAGES.items():
        if per_damage[damage] > 0:
            spoiler = Spoiler(history, random.Random(f"{name} {damage}"))
            expected = spoil(spoiler)
            if expected is not None:
                per_damage[damage] -= 1
                yield _written(folder, name, damage, spoiler.history, expected)


def _written(
    folder: Path, name: str, damage: str, history: History, expected: frozenset[str]
) -> DamagedHistory:
    file = folder / f"{name}.{damage.replace(' ', '-')}.edn"
    file.write_text("".join(f"{line}\n" for line in edn_lines(history)))
    kinds = {anomaly.kind for anomaly in check(history)}
    found = bool(kinds & expected) if expected else bool(kinds)
    return DamagedHistory(str(file), name, damage, found, tuple(sorted(kinds)))


def verdicts(java: str, class_path: str, files: list[str]) -> dict[str, JepsenVerdict]:
    """Return the errors that Jepsen's analysis finds in each of these files."""
    # Some of Jepsen's libraries write classes to the working directory.
    command = [java, "-Djava.awt.headless=true", "-cp", class_path, "clojure.main", str(SCRIPT)]
    done = subprocess.run(
        [*command, *files],
        cwd=Path(files[0]).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = read_verdicts(done.stdout.splitlines())
    if done.returncode or not found.keys() >= set(files):
        text = f"Jepsen's analysis ended with exit status {done.returncode} after {len(found)} of"
        raise JavaError(f"{text} {len(files)} histories; its error messages are above")
    return found


def read_verdicts(lines: Iterable[str]) -> dict[str, JepsenVerdict]:
    """Return Jepsen's verdicts by file, from the output of the analysis."""
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return {row["file"]: JepsenVerdict(row["errors"], row["allowed"]) for row in rows}


def table(found: list[DamagedHistory], theirs: dict[str, JepsenVerdict]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, one row for each kind of damage.

    Errors that Jepsen allows are in parentheses, if the undamaged history doesn't have them.
    """
    clean = {case.run: theirs[case.file] for case in found if case.damage == NONE}
    by_damage: dict[str, list[DamagedHistory]] = defaultdict(list)
    for case in found:
        by_damage[case.damage].append(case)
    yield "| damage | histories | found by ours | found by Jepsen's | Jepsen's errors |"
    yield "|---|--:|--:|--:|---|"
    for damage, group in by_damage.items():
        errors: Counter[str] = Counter()
        for case in group:
            verdict, base = theirs[case.file], clean[case.run]
            errors.update(verdict.errors.keys())
            if damage != NONE:
                errors.update(f"({name})" for name in verdict.allowed.keys() - base.allowed.keys())
        names = ", ".join(f"{name} {count}" for name, count in errors.most_common())
        ours, rejected = (
            sum(c.found for c in group),
            sum(bool(theirs[c.file].errors) for c in group),
        )
        yield f"| {damage} | {len(group)} | {ours} | {rejected} | {names} |"


def wrong(found: list[DamagedHistory], theirs: dict[str, JepsenVerdict]) -> Iterator[str]:
    """Yield undamaged histories that a judge rejects, and damaged ones that our judge accepts."""
    for case in found:
        if case.damage != NONE and not case.found:
            yield f"{case.file}: ours found {case.kinds or 'nothing'}"
        elif case.damage == NONE and (case.kinds or theirs[case.file].errors):
            yield f"{case.file}: ours {case.kinds}, Jepsen's {theirs[case.file].errors}"


def seeds_of(text: str) -> range:
    """Return the seeds in a range such as `0..49`."""
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    """Compare the judges as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--class-path", required=True, help="Jepsen and its dependencies")
    parser.add_argument("--java", default="java", help="Java 21 or newer")
    parser.add_argument("--family", action="append", help=f"default: {', '.join(FAMILIES)}")
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("0..19"), help="of each family")
    parser.add_argument("--damaged", type=int, default=6, help="histories for each kind of damage")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Counter(dict.fromkeys(DAMAGES, arguments.damaged))
    found = [
        case
        for name, history in runs(arguments.family or FAMILIES, arguments.seeds)
        for case in cases(folder, name, history, wanted)
    ]
    try:
        theirs = verdicts(arguments.java, arguments.class_path, [case.file for case in found])
    except (JavaError, OSError) as error:
        print(f"{arguments.java}: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(found, theirs)))
    complaints = list(wrong(found, theirs))
    print("\n".join(complaints), file=sys.stderr)
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
