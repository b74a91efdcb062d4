"""Check the requirements of a release, without publishing anything: `make release`.

In: the checkout. Out: a line for each requirement, ✓ or ✗ with what to do. Quick checks come first,
and all of them are reported; distributions are built and tried only if they pass (`--quick` skips
that). Tests are run by CI: CONTRIBUTING.md lists what else to run before a release. The workflow
publish.yml publishes when a tag is pushed.
"""

import argparse
import datetime
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


class NotYetError(Exception):
    """A requirement of a release isn't met; the message says what to do."""


def main() -> None:
    """Check that the repository is ready for a release, and build it unless `--quick` is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="without `make dist` and `dist-check`")
    quick = parser.parse_args().quick
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if not walk(ROOT, version, [one_version, changelog, recorded, clean_tree, free_tag]):
        sys.exit("release: mend these first")
    if quick:
        return
    for target in (["dist", "ARGS=--twice"], ["dist-check"]):
        if subprocess.run(["make", *target], cwd=ROOT, check=False).returncode != 0:
            sys.exit(f"release: make {target[0]} failed")
        print(f"✓ make {target[0]}")
    if not walk(ROOT, version, [clean_tree]):
        sys.exit("release: making the distributions changed the checkout")
    print(
        f"\nAll points are met, and nothing is published. These steps are left to you:\n"
        f"  git tag -a v{version} -m 'Odradek {version}'\n"
        f"  git push origin v{version}    # publish.yml builds everything again and publishes it"
    )


def walk(root: Path, version: str, points: list[Callable[[Path, str], str]]) -> bool:
    """Print for each requirement whether it is met; return whether all are met."""
    held = True
    for point in points:
        try:
            print(f"✓ {point(root, version)}")
        except NotYetError as error:
            held = False
            print(f"✗ {error}")
    return held


def one_version(root: Path, version: str) -> str:
    """Check that all files name the same version, in a form that can be ordered."""
    if not VERSION.fullmatch(version):
        raise NotYetError(f"the version {version} isn't of the form 1.2.3")
    for name, pattern in (
        ("src/odradek/__init__.py", r'^__version__ = "([^"]*)"'),
        ("src/odradek/network/handshake.py", r'^SOFTWARE_NAME, SOFTWARE_VERSION = .*, "([^"]*)"'),
    ):
        found = re.search(pattern, (root / name).read_text(), re.MULTILINE)
        if found is None or found[1] != version:
            raise NotYetError(f"{name} names {found and found[1]}, pyproject.toml {version}")
    return f"the version is {version} everywhere"


def changelog(root: Path, version: str) -> str:
    """Check that the changelog begins with this version and a date, with nothing unreleased."""
    text = (root / "CHANGELOG.md").read_text()
    if left := re.search(r"^## Unreleased\n+(?!## )(.+)$", text, re.MULTILINE):
        raise NotYetError(f"CHANGELOG.md has under Unreleased {left[1]!r}: move it to {version}")
    found = re.search(r"^## (?!Unreleased$)(.*)$", text, re.MULTILINE)
    heading = found[1] if found else "nothing"
    dated = re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", heading)
    try:
        datetime.date.fromisoformat(dated[1] if dated else "")
    except ValueError:
        raise NotYetError(
            f"CHANGELOG.md begins with {heading!r}: make it '{version} (the day, as 2026-01-31)'"
        ) from None
    return f"the changelog has {heading}"


def recorded(root: Path, version: str) -> str:
    """Check that the public API of this version is recorded, for later versions to keep."""
    written = root / "tests" / "unit" / "released.json"
    before = written.read_text() if written.is_file() else ""
    tool = [sys.executable, str(ROOT / "tools" / "public_record.py"), str(root)]
    now = subprocess.run(tool, cwd=root, capture_output=True, text=True, check=False)
    if now.returncode != 0 or now.stdout != before:
        raise NotYetError(f"{written.name} isn't what {version} has: run tools/public_record.py")
    return f"what {version} makes public is written down"


def clean_tree(root: Path, version: str) -> str:
    """Check that everything is committed: distributions contain the files that git knows."""
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        raise NotYetError(f"not committed: {', '.join(line[3:] for line in changed[:5])}")
    return "everything is committed"


def free_tag(root: Path, version: str) -> str:
    """Check that the version's tag doesn't exist, or names this commit."""
    tagged = git(root, "rev-parse", "--verify", "--quiet", f"v{version}^{{commit}}").strip()
    if tagged and tagged != git(root, "rev-parse", "HEAD").strip():
        raise NotYetError(f"v{version} is the tag of another commit: take the next version")
    return f"v{version} is the tag of this commit" if tagged else f"the tag v{version} is free"


def git(root: Path, *words: str) -> str:
    """Return git's output; empty if git fails."""
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main()
