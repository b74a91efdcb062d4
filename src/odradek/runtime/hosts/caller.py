"""Carries out a caller's half (`clients/calls`) in the thread of whoever calls.

In: a flow that runs in the caller, and the client's host. Out: its result. Must not: decide
anything, or leave a flow behind that could have tidied up, at whichever bytecode this is
interrupted (R-HO-1).
"""

from __future__ import annotations

from typing import TypeVar

from odradek.clients.calls.caller_flow import CallerFlow, Do
from odradek.network.host import Host

T = TypeVar("T")


def carried_out(flow: CallerFlow[T], host: Host) -> T:
    """Do what the flow asks for until it ends."""
    try:
        wanted = next(flow)
        while True:
            try:
                if isinstance(wanted, Do):
                    wanted.action()
                elif wanted.on:
                    host.run(wanted.on[0], wanted.deadline)  # type: ignore[arg-type]
                elif wanted.deadline is not None:
                    host.drive()
                now = host.now()
            except BaseException as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(now)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        wanted = None  # type: ignore[assignment]  # or an error's frames hold what holds the error
        flow.close()
