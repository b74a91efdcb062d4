"""Fuzz the native modules, one case after another, for a given time.

    python -m tests.fuzz.targets decode --seconds 60 --seed 1

In: a seed. Out: a line of JSON with counts, or the failure and its case; the exit status is not 0
then. `sanitized` runs this with sanitizers, so that a byte read beyond a buffer ends the process; a
part of the cases is passed to the reference, too, and results must be equal. After each chunk no
memory may be borrowed or leaked.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.fuzz import appends, sends
from tests.fuzz.agreement import outcome
from tests.fuzz.corpus import write_case
from tests.fuzz.frames import Frames, Seed, make_seeds
from tests.fuzz.kernels import built
from tests.fuzz.race import races
from tests.fuzz.sent import Sendings, agree, drive, exact
from tests.fuzz.services import Services
from tests.unit.record.implementations import PYTHON

from odradek.common.errors import CorruptRecordError
from odradek.record import builder, encoder, reference

CHUNK = 4000
"""Cases of one seed; a case is identified by its chunk's seed and its index."""
SAME_SHAPES = 5
"""Chunks created from the same valid batches: creating them takes as long as a thousand cases."""
STATE = struct.Struct("=qq")
SLOWEST = 100
"""Limit of a run by the wall clock, as a multiple of its seconds of processor time."""
LEAST_CASES = 100
"""A run does this many cases, even with little processor time."""
GROWTH = 200 << 20
"""More memory than this, after the first chunks, is a leak."""
Chunk = Callable[[int], Callable[[bool], Any]]


def load(name: str) -> Any:
    """Import a native module; without it there is nothing to fuzz."""
    found = built(name)
    if found is None:
        raise SystemExit(f"odradek.record.{name} isn't built")
    return found


class DifferentError(AssertionError):
    """The native module and the reference don't agree."""


@lru_cache(1)
def shapes(seed: int) -> list[Seed]:
    """Return the valid batches of some chunks in a row, excluded from garbage collection."""
    gc.unfreeze()
    made = make_seeds(seed)
    gc.collect()
    gc.freeze()
    return made


def decode_chunk(seed: int) -> Callable[[bool], Any]:
    """Yield cases for the decoder, each after it was run."""
    kernel = load("kernel")
    decode, frames = kernel.decode, Frames(seed, shapes(seed // SAME_SHAPES % 97))
    services = Services(kernel, random.Random(seed).random)

    def one(compare: bool) -> Any:
        case = frames.case()
        view = exact(case[0])
        if not compare:
            services.look(view, case[1]["start_offset"])
            with suppress(CorruptRecordError):
                services.read(decode(view, **case[1]))
            return case
        ours = outcome(decode, view, case[1])  # type: ignore[arg-type]
        theirs = outcome(reference.decode, memoryview(case[0]), case[1])
        if ours != theirs:
            raise DifferentError(f"kernel: {ours}\nreference: {theirs}")
        return case

    return one


def encode_chunk(seed: int) -> Callable[[bool], Any]:
    """Yield cases for the encoder and the builder, each after it was run."""
    kernel = load("kernel_encode")
    sendings, records, sent = Sendings(seed), appends.Appending(seed), sends.Sending(seed)
    turn = 0

    def one(compare: bool) -> Any:
        nonlocal turn
        turn += 1
        if turn % 5 == 0:  # all kinds are compared
            return by_record(records.case(), compare)
        if turn % 5 == 1:
            return into_open_batches(sent.case(), compare)
        case = sendings.case()
        ours = drive(kernel.ColumnEncoder, kernel.BatchBuilder, case)
        if compare:
            theirs = drive(encoder.ColumnEncoder, builder.BatchBuilder, case)
            if not agree(case, ours, theirs):
                raise DifferentError(f"kernel: {ours}\nreference: {theirs}")
        return case

    def into_open_batches(case: sends.Sends, compare: bool) -> Any:
        ours = sends.drive(kernel, case)
        if compare:
            theirs = sends.drive(PYTHON, case)
            if not sends.agree(ours, theirs):
                raise DifferentError(f"kernel: {ours}\nreference: {theirs}")
        return case

    def by_record(case: appends.Appends, compare: bool) -> Any:
        ours = appends.drive(kernel.BatchBuilder, case)
        if compare:
            theirs = appends.drive(builder.BatchBuilder, case)
            if ours != theirs:
                raise DifferentError(f"kernel: {ours}\nreference: {theirs}")
        return case

    return one


def avro_chunk(seed: int) -> Callable[[bool], Any]:
    """Yield cases for the Avro decoder, each after it was run."""
    from tests.fuzz.avro import Avros, differ, drive  # imports Arrow and fastavro

    kernel, avros = load("kernel_columns"), Avros(seed)

    def one(compare: bool) -> Any:
        case = avros.case()
        drive(kernel, case)
        if compare and (why := differ(case)) is not None:
            raise DifferentError(why)
        return case

    return one


def protobuf_chunk(seed: int) -> Callable[[bool], Any]:
    """Yield cases for the Protobuf decoder, each after it was run."""
    from tests.fuzz.protobuf import Protobufs, differ, drive  # imports Arrow and protobuf

    kernel, protobufs = load("kernel_columns"), Protobufs(seed)

    def one(compare: bool) -> Any:
        case = protobufs.case()
        drive(kernel, case)
        if compare and (why := differ(case)) is not None:
            raise DifferentError(why)
        return case

    return one


TARGETS: dict[str, Chunk] = {
    "decode": decode_chunk,
    "encode": encode_chunk,
    "avro": avro_chunk,
    "protobuf": protobuf_chunk,
}


def resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def lent() -> int:
    """Return how many bytes of the native modules' memory pools are borrowed."""
    return sum(int(load(name).pool_state()[2]) for name in ("kernel", "kernel_encode"))


class Clock:
    """A limit of processor time, so that other processes don't reduce the number of cases.

    If the process gets too little of it, the run ends after `SLOWEST` times as many seconds, but
    not before `LEAST_CASES` cases.
    """

    def __init__(self, seconds: float) -> None:
        self._processor = time.process_time() + seconds
        self._wall = time.monotonic() + SLOWEST * seconds

    @property
    def over(self) -> bool:
        """Return whether it is time to end."""
        return time.process_time() > self._processor or time.monotonic() > self._wall


class Run:
    """One run of a target."""

    def __init__(self, target: str, seed: int, every: int, state: Path | None) -> None:
        self.target = target
        self.seed = seed
        self.every = every
        self.cases = self.compared = 0
        self.failure: dict[str, Any] | None = None
        self._state = bytearray(STATE.size)
        if state is not None:
            state.write_bytes(bytes(STATE.size))
            with state.open("r+b") as file:
                self._state = mmap.mmap(file.fileno(), STATE.size)  # type: ignore[assignment]

    def chunk(self, seed: int, clock: Clock) -> bool:
        """Run a chunk; return False after a failure."""
        one = TARGETS[self.target](seed)
        state, every = self._state, self.every
        for index in range(CHUNK):
            STATE.pack_into(state, 0, seed, index)
            compare = index % every == 0
            try:
                one(compare)
            except Exception as error:  # any error is a finding
                self.failure = {
                    "seed": seed,
                    "index": index,
                    "error": type(error).__name__,
                    "text": str(error)[:4000],
                }
                return False
            self.cases += 1
            self.compared += compare
            if index % 64 == 0 and self._over(clock):
                break
        return True

    def _over(self, clock: Clock) -> bool:
        return clock.over and self.cases >= LEAST_CASES

    def run(self, seconds: float) -> None:
        """Run chunks until the time is over or one fails."""
        clock = Clock(seconds)
        for name in ("kernel", "kernel_encode"):
            load(name).set_pool_limit(0)  # free released blocks: their use is detected
        if self.target == "encode":
            try:
                racing = Clock(min(seconds / 10, 20))
                for _ in races(load("kernel_encode"), self.seed):
                    if racing.over:
                        break
            except Exception as error:
                self.failure = {"error": f"race: {type(error).__name__}", "text": str(error)}
                return
        chunk, first = 0, 0
        while not self._over(clock):
            if not self.chunk(self.seed * 1_000_000 + chunk, clock):
                return
            chunk += 1
            gc.collect()
            if lent():
                self.failure = {"error": "leak", "text": f"{lent()} bytes are still lent out"}
                return
            if chunk == 5:
                first = resident()
            if first and resident() - first > GROWTH:
                self.failure = {"error": "leak", "text": f"{resident() - first} bytes more"}
                return


def again(target: str, seed: int, index: int, about: str | None) -> None:
    """Run one case again, and perhaps add it to the corpus."""
    one = TARGETS[target](seed)
    case = None
    for number in range(index + 1):
        case = one(number == index and about is None)
    if about is not None:
        write_case(target, case, about)


def main() -> None:
    """Run one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time")
    parser.add_argument("--nice", type=int, default=0, help="nice value of the process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=8, help="compare every n-th case")
    parser.add_argument("--state", type=Path, help="where to note the case that is being done")
    parser.add_argument("--only", type=int, help="do this case of the chunk --seed alone")
    parser.add_argument("--save", help="only add that case to the corpus; what it is about")
    options = parser.parse_args()
    if options.only is not None:
        again(options.target, options.seed, options.only, options.save)
        return
    os.nice(options.nice)
    run = Run(options.target, options.seed, options.every, options.state)
    start = time.monotonic()
    run.run(options.seconds)
    told = {
        "target": run.target,
        "cases": run.cases,
        "compared": run.compared,
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "failure": run.failure,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    # After a report of a sanitizer the interpreter may be unable to shut down.
    sys.stdout.flush()
    os._exit(1 if run.failure else 0)


if __name__ == "__main__":
    main()
