"""Metrics as OpenTelemetry's observable instruments, which its readers read for each export.

In: clients, a meter provider. Out: observable counters and gauges: `messaging.client.sent.messages`
and `messaging.client.consumed.messages` by the semantic conventions for messaging, and the others
as `kafka.<group>.<name>`, the names of OpenTelemetry's instrumentation of Java's clients. Must not:
start a reader, keep a client alive, or read a client's metrics once for each instrument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.clients.metrics.catalogue import SCOPES, Meaning
from odradek.clients.metrics.metric import Metric, Metrics
from odradek.common.errors import ArgumentError
from odradek.common.extras import require_extra
from odradek.monitoring.names import Measured, MeasuredClients, words

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

SCOPE = "odradek"
_UNITS = {"": "1", "ms": "ms", "s": "s", "bytes": "By"}


class _Convention(NamedTuple):
    """A metric of the semantic conventions, derived from metrics of this client."""

    name: str
    text: str
    ours: tuple[str, ...]
    operation: str


CONVENTIONS = (
    _Convention(
        "messaging.client.sent.messages",
        "Number of messages producer attempted to send to the broker.",
        ("kafka", "producer-topic", "record-send-total"),
        "send",
    ),
    _Convention(
        "messaging.client.consumed.messages",
        "Number of messages that were delivered to the application.",
        ("kafka", "consumer-fetch-manager", "topic", "records-consumed-total"),
        "poll",
    ),
)


class OpenTelemetryMetrics:
    """Export clients' metrics as instruments of an OpenTelemetry meter (the extra `opentelemetry`).

        OpenTelemetryMetrics(producer, consumer)            # of the global meter provider
        OpenTelemetryMetrics(admin, meter_provider=provider)

    Each export of the provider's readers reads the metrics of the clients once for all instruments;
    clients that were garbage-collected are left out. Raises `ArgumentError` for arguments that
    aren't clients, and `MissingExtraError` if the extra isn't installed.
    """

    def __init__(self, *clients: Measured, meter_provider: MeterProvider | None = None) -> None:
        if not clients:
            raise ArgumentError("pass at least one client whose metrics should be exported")
        self._clients = MeasuredClients(clients)
        self._asked: dict[tuple[str, ...], list[tuple[Metric, str]]] = {}
        self._served: set[str] = set()
        require_extra("opentelemetry.metrics")
        from opentelemetry.metrics import get_meter

        self._make(get_meter(SCOPE, meter_provider=meter_provider))

    def _make(self, meter: Any) -> None:
        for name, meaning in _instruments():
            of, unit = ".".join(_plain(name)), _UNITS[meaning.unit]
            self._instrument(meter, of, meaning.kind, unit, meaning.text, self._all_of(of, name))
        for convention in CONVENTIONS:
            observe = self._by_convention(convention)
            of, text = convention.name, convention.text
            self._instrument(meter, of, "counter", "{message}", text, observe)

    @staticmethod
    def _instrument(
        meter: Any, name: str, kind: str, unit: str, text: str, observe: Callable[..., Any]
    ) -> None:
        make = meter.create_observable_counter
        if kind == "gauge":
            make = meter.create_observable_gauge
        make(name, callbacks=[observe], unit=unit, description=text)

    def _found(self, instrument: str, name: tuple[str, ...]) -> Iterable[tuple[Metric, str]]:
        """Return the metrics of a name.

        An instrument that is read a second time begins a new export: the clients' metrics are read
        again.
        """
        if instrument in self._served or not self._served:
            self._served, self._asked = set(), _by_words(self._clients.snapshots())
        self._served.add(instrument)
        return self._asked.get(name, ())

    def _all_of(
        self, instrument: str, name: tuple[str, ...]
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            from opentelemetry.metrics import Observation

            for metric, client_id in self._found(instrument, name):
                yield Observation(metric.value, {**metric.tags, "client-id": client_id})

        return observe

    def _by_convention(
        self, convention: _Convention
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            from opentelemetry.metrics import Observation

            for metric, client_id in self._found(convention.name, convention.ours):
                attributes = {
                    "messaging.system": "kafka",
                    "messaging.operation.name": convention.operation,
                    "messaging.destination.name": metric.tags["topic"],
                    "messaging.client.id": client_id,
                }
                yield Observation(metric.value, attributes)

        return observe


def _plain(name: tuple[str, ...]) -> Iterator[str]:
    return (word.replace("-", "_") for word in name)


def _by_words(
    snapshots: Iterable[tuple[Metrics, str]],
) -> dict[tuple[str, ...], list[tuple[Metric, str]]]:
    found: dict[tuple[str, ...], list[tuple[Metric, str]]] = {}
    for snapshot, client_id in snapshots:
        for metric in snapshot.all:
            if not math.isnan(metric.value):
                found.setdefault(words(metric), []).append((metric, client_id))
    return found


def _instruments() -> Iterator[tuple[tuple[str, ...], Meaning]]:
    """Yield the name and meaning of each metric that a client may have, once."""
    for scope in SCOPES:
        for name, meaning in scope.meanings.items():
            tags = dict.fromkeys(("client-id", *scope.tags), "")
            like = Metric(name, scope.group, tags, 0, meaning.unit, meaning.text, meaning.kind)
            yield words(like), meaning
