"""`make broken-rules`: break one rule after the other on purpose; each must make a test fail.

A rule that nothing would miss isn't kept by anything. Each line of the table changes the sources a
little, in a copy that is put in front of the installed package, and names the tests that have to
notice. Printed is the test that failed, or SURVIVED, which makes the exit status 1. Before that the
same tests run against the sources as they are: they have to pass.

    python tools/break_rules.py                all of them
    python tools/break_rules.py spacing jitter those whose name holds one of the words
    python tools/break_rules.py --list         what there is
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from admin_rules_to_break import ADMIN_BREAKAGES
from group_rules_to_break import GROUP_BREAKAGES
from house_rules_to_break import HOUSE_BREAKAGES
from metadata_rules_to_break import METADATA_BREAKAGES
from producer_rules_to_break import PRODUCER_BREAKAGES
from rules_to_break import BREAKAGES as OTHERS
from rules_to_break import Breakage, Patch
from security_rules_to_break import SECURITY_BREAKAGES
from serialization_rules_to_break import SERIALIZATION_BREAKAGES
from slow_rules_to_break import SLOW_BREAKAGES
from spark_rules_to_break import SPARK_BREAKAGES
from trace_rules_to_break import TRACE_BREAKAGES
from worker_rules_to_break import WORKER_BREAKAGES

BREAKAGES = (
    *OTHERS,
    *ADMIN_BREAKAGES,
    *GROUP_BREAKAGES,
    *HOUSE_BREAKAGES,
    *METADATA_BREAKAGES,
    *PRODUCER_BREAKAGES,
    *SECURITY_BREAKAGES,
    *SERIALIZATION_BREAKAGES,
    *SLOW_BREAKAGES,
    *SPARK_BREAKAGES,
    *TRACE_BREAKAGES,
    *WORKER_BREAKAGES,
)

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "odradek"
PATIENCE = 300
"""Seconds for the tests of one breakage."""


def patched(text: str, patch: Patch) -> str:
    """The text with the patch in it."""
    if patch.old not in text:
        raise LookupError(f"{patch.file} doesn't hold {patch.old!r} any more")
    return text.replace(patch.old, patch.new)


def run_tests(sources: Path, tests: Iterable[str], folder: Path) -> tuple[int, str]:
    """Run tests against a copy of the sources; the exit status and what pytest said."""
    environment = {**os.environ, "PYTHONPATH": str(sources.parent), "ODRADEK_WHOLE": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rf", "--show-capture=no", "--tb=line"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={folder / 'pytest'}"]
    where = "import odradek; print(odradek.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=environment, capture_output=True, text=True, check=True
    ).stdout
    if not found.startswith(str(sources)):
        raise RuntimeError(f"the copy isn't what is imported, but {found}")
    done = subprocess.run(
        [*command, *dict.fromkeys(tests)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def try_one(breakage: Breakage, sources: Path, folder: Path) -> bool:
    """Break a rule and say whether a test noticed."""
    kept: dict[Path, str] = {}
    try:
        for patch in breakage.patches:
            path = sources / patch.file
            text = path.read_text()
            kept.setdefault(path, text)
            path.write_text(patched(text, patch))
        status, said = run_tests(sources, breakage.tests, folder)
    except subprocess.TimeoutExpired:
        status, said = 1, "FAILED it went on for ever"
    finally:
        for path, text in kept.items():
            path.write_text(text)
    failed = re.search(r"^FAILED (.*?)(?: - .*)?$", said, re.MULTILINE)
    if status == 1 and failed:
        print(f"{breakage.rule:7s} {breakage.name}: {failed[1]} failed", flush=True)
        return True
    if status != 0:  # neither passed nor failed: the table names a test that isn't there
        print(said)
    print(f"{breakage.rule:7s} {breakage.name}: SURVIVED", flush=True)
    return False


def main() -> int:
    """Break all rules, or those that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only breakages whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="name them and end")
    options = parser.parse_args()
    chosen = [b for b in BREAKAGES if not options.words or any(w in b.name for w in options.words)]
    if not chosen:
        parser.error(f"no breakage's name holds {' or '.join(options.words)}")
    if options.list:
        for breakage in chosen:
            print(f"{breakage.rule:7s} {breakage.name}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = folder / "src" / "odradek"
        shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
        status, said = run_tests(sources, (t for b in chosen for t in b.tests), folder)
        if status != 0:
            print(said)
            print("These tests have to pass before anything is broken.")
            return 1
        caught = sum(try_one(breakage, sources, folder) for breakage in chosen)
    print(f"{caught} of {len(chosen)} broken rules were noticed")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
