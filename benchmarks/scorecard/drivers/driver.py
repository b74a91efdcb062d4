"""Shared code of the Python drivers: arguments, JSON lines on stdout, commands on stdin.

Imports only the standard library: the other clients' drivers run in a venv without Odradek.
"""

import argparse
import json
import os
import sys
import threading
import time

PACE = 0.1
"""Seconds between two records in the modes `produce` and `idle`."""
SHOWN_ERRORS_PER_SECOND = 5
_lock = threading.Lock()
_shown = []


def options():
    parser = argparse.ArgumentParser(description="One client of one library, for the scorecard.")
    parser.add_argument("mode", choices=["produce", "idle", "metadata", "callers", "call"])
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT[,HOST:PORT…]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--callers", type=int, default=1000)
    parser.add_argument("--timeout", type=float, default=5.0, help="of the call, in seconds")
    parser.add_argument("--refreshes", type=int, default=100)
    return parser.parse_args()


def say(event, **more):
    with _lock:
        sys.stdout.write(json.dumps({"event": event, "at": time.time(), **more}) + "\n")
        sys.stdout.flush()


def error(what):
    """Report an error of the library, at most a few per second."""
    now = time.monotonic()
    with _lock:
        _shown[:] = [at for at in _shown if at > now - 1.0]
        if len(_shown) >= SHOWN_ERRORS_PER_SECOND:
            return
        _shown.append(now)
    say("error", what=f"{type(what).__name__}: {what}" if isinstance(what, Exception) else what)


def leave():
    os._exit(0)


def leave_at_eof(seconds):
    """End the process when stdin ends or after some seconds, without closing the client."""

    def watch():
        while sys.stdin.readline():
            pass
        leave()

    threading.Thread(target=watch, daemon=True).start()
    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def wait_for_go(seconds):
    """Report that the client is established and wait until the fault has started."""
    say("waiting")
    if not sys.stdin.readline():
        leave()
    leave_at_eof(seconds)


def stay():
    """Keep connections open until stdin ends."""
    while True:
        time.sleep(3600)


def at_once(count, call):
    """Let `count` threads call `call(i)` at the same time.

    Return the number of successful calls, and the time when the last call returned.
    """
    start = threading.Barrier(count + 1)
    good = []

    def one(i):
        start.wait()
        try:
            call(i)
            good.append(i)
        except Exception as problem:
            error(problem)

    threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.monotonic()
    for thread in threads:
        thread.join()
    return len(good), time.monotonic() - begin


def timed(call):
    """Make the single call of mode `call`; report its duration and its result or error."""
    begin = time.monotonic()
    try:
        call()
        what = "ok"
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}"
    say("returned", seconds=time.monotonic() - begin, what=what)
    leave()


def refresh(count, call):
    """Request metadata `count` times, one request after the other."""
    good = 0
    for i in range(count):
        try:
            call(i)
            good += 1
        except Exception as problem:
            error(problem)
    say("done", n=good)
    stay()


def pace():
    """Yield 0, 1, 2 … every 100 ms; if the caller is late once, all later numbers are delayed."""
    n = 0
    while True:
        begin = time.monotonic()
        yield n
        n += 1
        time.sleep(max(0.0, PACE - (time.monotonic() - begin)))
