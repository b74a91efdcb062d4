"""All targets under ASan and UBSan, two seconds of processor time each, in parallel.

Where the compiler has no sanitizers nothing is run, and the skip says why. FUZZ_SECONDS sets the
time: `make test-long` five seconds, `make fuzz` more and with a seed of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fuzz import sanitized
from tests.fuzz.targets import LEAST_CASES, SLOWEST, TARGETS
from tests.volume import WHOLE

SECONDS = float(os.environ.get("FUZZ_SECONDS", "5" if WHOLE else "2"))
SEED = os.environ.get("FUZZ_SEED", "1")
PATIENCE = 300
NICE = 15
"""Niceness of the targets: tests with brokers, which have time limits, run beside this one."""
pytestmark = pytest.mark.timeout(SLOWEST * SECONDS + 400)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> sanitized.Build:
    made = sanitized.build(tmp_path_factory.mktemp("sanitized"))
    if isinstance(made, str):
        pytest.skip(f"not run: {made}")
    return made


def test_no_fuzz_target_fails_under_sanitizers(build: sanitized.Build, tmp_path: Path) -> None:
    arguments = ("--seconds", str(SECONDS), "--nice", str(NICE), "--seed", SEED)
    running = [sanitized.Process(build, target, tmp_path, *arguments) for target in TARGETS]
    told = [one.wait(SLOWEST * SECONDS + PATIENCE) for one in running]
    for one in told:
        failure = one["failure"]
        assert failure is None, (
            f"{failure['text']}\n\nagain: python -m tests.fuzz.targets {one['target']} "
            f"--seed {failure.get('seed')} --only {failure.get('index')}"
        )
        assert one["cases"] >= LEAST_CASES, one
        print(f"{one['target']}: {one['cases']} cases, {one['compared']} compared")  # noqa: T201


OVERRUN = """
import ctypes
from odradek.record import kernel
room = ctypes.create_string_buffer(64)
view = memoryview((ctypes.c_char * 100000).from_address(ctypes.addressof(room)))
kernel.crc32c(view.cast("B"))
"""


def test_a_byte_beyond_a_buffer_is_reported(build: sanitized.Build) -> None:
    """Check the sanitizer: a native module that reads on is stopped."""
    done = sanitized.run_code(build, OVERRUN)
    assert done.returncode == sanitized.REPORT_STATUS, done.stderr
    assert "AddressSanitizer" in done.stderr
    assert "odradek_crc" in done.stderr
