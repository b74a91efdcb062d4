"""Run a SOCKS5 proxy that loses answers of brokers, as a process.

In: lines on stdin, "lose API_KEY": the next answer to a request with this key is dropped and its
connection ended, so the client can't know whether the request took effect. Out: JSON lines on
stdout: its port, then each lost answer. It ends when stdin is closed. Connections must not be
encrypted.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.proxy_server import ProxyServer, take

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT = 0, 1, 8, 11, 12
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
CONSUMER_HEARTBEAT, METADATA, SYNC_GROUP, LEAVE_GROUP, FIND_COORDINATOR = 68, 3, 14, 13, 10
LOST = (
    *(PRODUCE, PRODUCE, END_TXN, TXN_OFFSET_COMMIT, OFFSET_COMMIT, FETCH, INIT_PRODUCER_ID),
    *(JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP, CONSUMER_HEARTBEAT, METADATA, FIND_COORDINATOR),
    *(ADD_PARTITIONS, ADD_OFFSETS),
)
"""API keys of requests; one `lose` drops the next answer to each of them."""


class LossyProxy(ProxyServer):
    """Forwards whole frames, and drops the answers that `lose` names."""

    def __init__(self) -> None:
        super().__init__()
        self._armed: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._asked: dict[socket.socket, dict[int, int]] = {}
        """API keys of unanswered requests by connection to a broker and correlation id."""

    def lose(self, api: int) -> None:
        """Lose the next answer to a request with this API key."""
        with self._lock:
            self._armed[api] += 1

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection, and close both ends of it: a soak opens thousands of them."""
        broker = None
        with client, suppress(OSError, EOFError):
            client.recv(1, socket.MSG_PEEK)
            broker = self._socks(client)
            if broker is not None:
                self._asked[broker] = {}
                back = threading.Thread(target=self._pump, args=(broker, client), daemon=True)
                back.start()
                self._pump(client, broker)
                back.join()
        self._sockets.remove(client)
        if broker is not None:
            del self._asked[broker]
            broker.close()

    def _start(self, function: Any, *arguments: socket.socket) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        super()._start(function, *arguments)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        answers = source in self._asked
        asked = self._asked[source if answers else sink]
        with suppress(OSError, EOFError):
            while True:
                head = take(source, 4)
                frame = take(source, int.from_bytes(head, "big"))
                if answers:
                    api = asked.pop(int.from_bytes(frame[:4], "big"), -1)
                    if self._loses(api):
                        break
                else:
                    asked[int.from_bytes(frame[4:8], "big")] = int.from_bytes(frame[:2], "big")
                sink.sendall(head + frame)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _loses(self, api: int) -> bool:
        with self._lock:
            if not self._armed[api]:
                return False
            self._armed[api] -= 1
        self.told(api)
        return True

    def told(self, api: int) -> None:
        """Report a lost answer."""
        tell(lost=api)


class ProxyProcess:
    """The proxy as a process, so that its threads and descriptors aren't the soak's."""

    def __enter__(self) -> Self:
        self.lost: Counter[int] = Counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.lossy_proxy"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.url = f"socks5://127.0.0.1:{json.loads(self._process.stdout.readline())['port']}"
        self._reader = threading.Thread(target=self._read, name="lossy-proxy", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:  # no report may be lost because of a proxy that hangs
            self._process.kill()
            self._process.wait()
        self._reader.join(10)

    def lose(self) -> None:
        """Lose the next answer of each API."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"lose {api}\n" for api in LOST))
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lost[json.loads(line)["lost"]] += 1


def tell(**what: float) -> None:
    """Write one line for the soak."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run until stdin is closed."""
    with LossyProxy() as proxy:
        tell(port=proxy.port)
        for line in sys.stdin:
            proxy.lose(int(line.split()[1]))


if __name__ == "__main__":
    main()
