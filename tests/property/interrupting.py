"""Raise an exception at a chosen bytecode, like a signal handler that raises."""

from __future__ import annotations

import dis
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import odradek

OURS = str(Path(odradek.__file__).parent)
THEIRS = tuple(str(Path(OURS) / room) for room in ("simulation", "testing"))
ALL = "ODRADEK_EVERY_BYTECODE"
"""Environment variable: if it is set, tests try each bytecode instead of a random sample."""


class Interruption(BaseException):
    """The exception that the tracer raises in the tested code."""


@cache
def uninterruptible(code: CodeType) -> frozenset[int]:
    """Return offsets of bytecodes at which a tracer can raise, but a signal handler can't.

    CPython looks for signals at the end of calls, at jumps back and at the beginning of functions.
    So these bytecodes are returned: from the end of a `with` block to the call of `__exit__`; from
    the taking of a lock to the begin of its `with` block (3.14, see `ClientLock`); the marks of
    3.14 for its own tracers; the re-raise of a closed generator; and from 3.12 on those before a
    jump back, because CPython looks for signals after the jump (tried: 300 alarms in such loops
    left no lock held).
    """
    found: set[int] = set()
    instructions = list(dis.get_instructions(code))
    takes = code.co_qualname == "ClientLock.__enter__"
    for at, instruction in enumerate(instructions):
        if instruction.opname == "NOT_TAKEN" or (takes and instruction.opname == "RETURN_VALUE"):
            found.add(instruction.offset)
        if instruction.opname in ("PUSH_EXC_INFO", "WITH_EXCEPT_START"):
            found.add(instruction.offset)
        if instruction.opname == "CALL_INTRINSIC_1" and "STOPITERATION" in instruction.argrepr:
            found |= {instruction.offset, instructions[at + 1].offset}  # the next bytecode raises
        if instruction.opname == "JUMP_BACKWARD" and sys.version_info >= (3, 12):
            found.add(instruction.offset)
            before = at - 1
            while instructions[before].opname == "EXTENDED_ARG":
                found.add(instructions[before].offset)
                before -= 1
        three = instructions[at : at + 3]
        if len(three) == 3 and all(i.opname == "LOAD_CONST" and i.argval is None for i in three):
            before = at - 1  # bytecodes that move the returned value on the stack
            while instructions[before].opname in ("SWAP", "NOP", "COPY"):
                found.add(instructions[before].offset)
                before -= 1
            for later in instructions[at : at + 6]:
                found.add(later.offset)
                if later.opname == "CALL":
                    break
    return frozenset(found)


class At:
    """A tracer that raises at the n-th bytecode of Odradek's files in this thread."""

    def __init__(self, number: float, inside: str = OURS) -> None:
        """Count the bytecodes of files whose paths begin with `inside`."""
        self.left = number
        self.inside = inside
        self.seen = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        del argument
        name = frame.f_code.co_filename
        if not name.startswith(self.inside) or name.startswith(THEIRS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti not in uninterruptible(frame.f_code):
            self.seen += 1
            if self.seen > self.left:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise Interruption(self.where)
        return self

    def __enter__(self) -> Self:
        self.before = sys.gettrace()
        # Python 3.12 checks `f_trace_opcodes` of a frame only when a tracer is set.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)


def places(total: int, most: int, seed: int) -> Iterator[int]:
    """Yield the numbers of the bytecodes to try: all, or a random sample of `most`."""
    if total <= most or os.environ.get(ALL):
        yield from range(total)
    else:
        yield from sorted(random.Random(seed).sample(range(total), most))
