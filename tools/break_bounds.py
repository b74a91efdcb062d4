"""Disable the kernels' bound checks one by one; a test must fail each time: `make broken-bounds`.

The kernels are built so that each check can be disabled by its number (`bounds.py`), with
sanitizers and without. A process of the fuzz targets runs with each number, with the seed of the
test command. For a check that no target notices, the tests of record run as in the test command,
with kernels without sanitizers. The output is the target or test that failed, or SURVIVED, which
makes the exit status 1. Before that, all must pass with every check enabled.

    python tools/break_bounds.py               all of them (some minutes for each kernel)
    python tools/break_bounds.py walk grow     those whose name contains one of the words
    python tools/break_bounds.py columns:      those of kernel_columns
    python tools/break_bounds.py --by-one      weakened by one instead of disabled
    python tools/break_bounds.py --list        list the checks
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import bounds

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the kernel builds are in `tests`

from tests.fuzz import sanitized  # noqa: E402
from tests.fuzz.targets import SLOWEST  # noqa: E402

KERNELS = {
    "kernel": ("decode",),
    "kernel_encode": ("encode",),
    "kernel_columns": ("avro", "protobuf"),
}
"""Names of the fuzz targets that run each kernel."""
READY = 'SOURCES: str = odradek_digest.decode().partition(":")[2]'
"""Line of a kernel's source after which the number of the disabled check is read."""
TESTS = (
    *("tests/unit/record/test_kernel.py", "tests/unit/record/test_kernel_encode.py"),
    "tests/unit/record/test_open_batches.py",
    *("tests/unit/record/test_encoder.py", "tests/unit/record/test_builder.py"),
    *("tests/unit/record/test_decode.py", "tests/unit/record/test_kernel_avro.py"),
    "tests/unit/record/test_old_messages.py",
    *("tests/property/record/test_kernel_decode.py", "tests/property/record/test_kernel_encode.py"),
    *("tests/property/record/test_kernel_avro.py", "tests/property/record/test_kernel_protobuf.py"),
    "tests/unit/serialization/test_protobuf_columns.py",
)
SECONDS = 60.0
"""Processor seconds for which a fuzz target runs in the test command."""
PATIENCE = 900
"""Timeout in seconds for all tests with one disabled check, on a busy machine."""


class Builds(NamedTuple):
    """Built kernels: with sanitizers for the fuzz targets, without them for the tests."""

    watched: sanitized.Build
    plain: sanitized.Build


NO_BOUNDS = {
    r": cython.compiled$": "says whether this is compiled",
    # Checks that another check makes redundant: disabling them changes nothing.
    r"^get_varlong: byte >= 0x80$": "the tenth byte is at most 1, says the next one",
    r"^records: min\(…, count\)$": "only makes room for less",
    r"^read_headers: stop < at$": "no count is within half of less than nothing",
    r"^survey_batches: base < 0$": "no delta is below INT64_MAX - base then, which wraps",
    r"^binary_values: ends\[stop\] >": "each entry is compared with the data, too",
    r"^is_plain_tuple: cls.__itemsize__": "true of whatever is a tuple",
    r"^header_lists: ends\[stop\] >": "each row is compared with the data, too",
    r"^find_header: found.name_size > end - at$": "the next number is read before the end, or not",
    r"^headers_between: not at$": "only a codec of names that writes into the column leads there",
    r"^_put: left - size >= 32$": "each block is followed by slack",
    r"^_reaches: start <= items$": "no count fits into less than nothing",
    r"^_reaches: 0 <= count$": "counts below 0 are refused before",
    r"^append: self.batch.closed$": "`add` asks again",
    r"^read_fields: header.last_delta >= 0$": "INT64_MAX less it wraps, and no base is below that",
    r"^crc32c(_by_table)?: data.shape\[0\] == 0$": "of no bytes none is read, and the sum is 0",
    r"^measure_headers: row.most > self.limit$": "`measure` asks again; it only ends sooner",
    r"^names_are_text: size < 0$": "`measure` has just refused it; less than nothing isn't read",
    # This only happens if another thread writes into the columns. Nothing is copied then: at most
    # two excess bytes are in the slack, and the check of the batch's end fails.
    r"^put_headers: (name < 0|value == BAD_SPAN)$": "the last line asks for the very end",
    r"^use: builder is None$": "Cython has refused it: None is no BatchBuilder",
    r"^\w+: grown?\(|^read: self\.failed$": "no memory",
    r"^put_null: self\.put_null\(|^other: self\.put_(struct|null)\(": "no memory",
    r"^value: not at$": "NULL is before the end",
    r"^(get_short|get_size|skipped): not at$": "of nothing nothing is read, and NULL is returned",
    r"^(other|binary): not at$": "of nothing nothing is read, and NULL is returned",
    r"^decimal: not at$": "the size stays below 0",
    r"^items: items >": "each item takes a byte; it only ends sooner",
    r"^put_null: column\.kind == STRUCT$": "a column of nothing has no child",
    r"^repeated: at == cython\.NULL$": "its size is 0 then, so nothing follows and it stays NULL",
    r"^single: not at$": "what it puts is taken back, for NULL is what comes out",
    r"^run: self\.run\(": "constants are the compiler's own, and are read",
    r": (not )?(data|found(\.data)?|self\.slots|block\.data)$": "no memory",
    r": work\.error == NO_MEMORY$": "no memory",
}
"""Conditions that aren't disabled: regular expressions for their names, each with the reason."""


def checks(kernel: str, *, by_one: bool) -> dict[int, bounds.Bound]:
    """Return a kernel's checks by number; checks of different kernels have different numbers."""
    source = (ROOT / "src" / "odradek" / "record" / f"{kernel}.py").read_text()
    return {
        number: bound
        for number, bound in enumerate(bounds.find(source), 1000 * list(KERNELS).index(kernel))
        if bound.by_one == by_one and not any(re.search(p, bound.name) for p in NO_BOUNDS)
    }


def arm(folder: Path, chosen: dict[str, dict[int, bounds.Bound]]) -> None:
    """Copy the package, with code in the kernels that disables the check of a given number."""
    package = sanitized.copy(folder)
    for kernel, found in chosen.items():
        path = package / "record" / f"{kernel}.py"
        path.write_text(bounds.armed(path.read_text(), found, READY))


def first_line(text: str) -> str:
    """Return the most important line of a sanitizer's or test's report."""
    for pattern in (r"ERROR: (AddressSanitizer: [\w-]+)", r"runtime error: (.*)", r"(.+)"):
        if found := re.search(pattern, text):
            return found[1][:90]
    return "?"


def noticed(
    builds: Builds, kernel: str, number: int, folder: Path, seconds: float, quick: bool
) -> str | None:
    """Return the target or test that fails without this check; None if none fails."""
    own = folder / f"{kernel}-{number}"
    own.mkdir()
    flag = {bounds.VARIABLE: str(number)}
    for target in KERNELS[kernel]:
        process = sanitized.Process(
            builds.watched, target, own, "--seconds", str(seconds), "--seed", "1", **flag
        )
        told = process.wait(SLOWEST * seconds + 60)
        if told["failure"] is not None:
            failure = told["failure"]
            return f"{target}, {failure['error']}: {first_line(failure['text'])}"
    if quick:
        return None
    return noticed_by_tests(builds.plain, own, flag)


def noticed_by_tests(build: sanitized.Build, folder: Path, flag: dict[str, str]) -> str | None:
    """Return the test that fails, or how the tests ended otherwise; None if they passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rf", "--tb=line", "--no-header"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={folder / 'pytest'}"]
    # On a slow machine a timeout must not count as a failed test.
    command += ["-o", f"timeout={PATIENCE}", *TESTS]
    try:
        done = subprocess.run(
            command,
            env=build.environment(ODRADEK_WHOLE="1", **flag),
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "the tests didn't end"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"the tests were ended by signal {-done.returncode}"
    failed = re.search(r"^FAILED (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else first_line(done.stderr or done.stdout)


def try_all(
    builds: Builds,
    chosen: dict[str, dict[int, bounds.Bound]],
    folder: Path,
    seconds: float,
    jobs: int,
    quick: bool,
) -> int:
    """Disable the checks one by one, and return the number of checks that no test noticed."""
    survived = 0
    with ThreadPoolExecutor(jobs) as pool:
        running = [
            (kernel, bound, pool.submit(noticed, builds, kernel, number, folder, seconds, quick))
            for kernel, found in chosen.items()
            for number, bound in found.items()
        ]
        for kernel, bound, result in running:
            verdict = result.result()
            survived += verdict is None
            print(f"{kernel}:{bound.line} {bound.name}: {verdict or 'SURVIVED'}", flush=True)
    print(f"{len(running) - survived} of {len(running)} broken bounds were noticed")
    return survived


def main() -> int:
    """Disable one by one all checks, or the checks named as arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "words", nargs="*", help="only checks whose kernel and name hold one of these"
    )
    parser.add_argument("--list", action="store_true", help="name them and end")
    parser.add_argument("--by-one", action="store_true", help="make them weaker by one instead")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each in its target")
    parser.add_argument("--quick", action="store_true", help="only the targets, not the tests")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    chosen = {
        kernel: {
            number: bound
            for number, bound in checks(kernel, by_one=options.by_one).items()
            if not options.words or any(word in f"{kernel}: {bound.name}" for word in options.words)
        }
        for kernel in KERNELS
    }
    if not any(chosen.values()):
        parser.error(f"no check's name holds {' or '.join(options.words)}")
    if options.list:
        for kernel, found in chosen.items():
            for bound in found.values():
                print(f"{kernel}:{bound.line} {bound.name}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = []
        for own, watched in ((folder / "watched", True), (folder / "plain", False)):
            own.mkdir()
            arm(own, chosen)
            build = sanitized.build(own, sanitizers=watched)
            if isinstance(build, str):
                print(f"not run: {build}")
                return 1
            made.append(build)
        builds = Builds(*made)
        for kernel in KERNELS:  # the tests are the same for all kernels
            quick = options.quick or kernel != next(iter(KERNELS))
            if (verdict := noticed(builds, kernel, -1, folder, 5, quick)) is not None:
                print(f"{kernel}: {verdict}\nAll must pass before anything is broken.")
                return 1
        return (
            1
            if try_all(builds, chosen, folder, options.seconds, options.jobs, options.quick)
            else 0
        )


if __name__ == "__main__":
    sys.exit(main())
