"""Describe and change configurations of topics, brokers, loggers, groups and metrics (KIP-339).

In: arguments of a call. Out: `AdminCall`s. Must not: know what an option means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.clients.admin.admin_arguments import keys, setting, some_of
from odradek.clients.admin.admin_call import AdminCall, merged, one
from odradek.clients.batched_calls import (
    ApiCall,
    ItemResult,
    ItemResults,
    call_any,
    call_brokers,
)
from odradek.clients.client_engine import ClientEngine
from odradek.common.arguments import INT32_MAX, choice, flag, mapping, refusal, shown, text
from odradek.common.errors import ConfigurationError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.network.flow import Flow
from odradek.protocol.messages import describe_configs as d
from odradek.protocol.messages import incremental_alter_configs as a
from odradek.protocol.messages import list_config_resources as r

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

RESOURCE_TYPES = {
    "TOPIC": 2,
    "BROKER": 4,
    "BROKER_LOGGER": 8,
    "CLIENT_METRICS": 16,
    "GROUP": 32,
}
"""Kafka's names and numbers of the kinds of resources that have a configuration."""
METRICS = "CLIENT_METRICS"
_TYPE_NAMES = {number: name for name, number in RESOURCE_TYPES.items()}
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
SOURCES = (
    *("UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    *("STATIC_BROKER_CONFIG", "DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG"),
    *("DYNAMIC_CLIENT_METRICS_CONFIG", "DYNAMIC_GROUP_CONFIG"),
)
"""Names of a value's source, by Kafka's numbers."""
TYPES = (
    *("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS"),
    "PASSWORD",
)


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """A resource with a configuration.

    `type` is TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS or GROUP. The `name` of a broker is its
    id as text; an empty name means the default of all brokers.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name or '(default)'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value of the option from another source.

    The value takes effect if the synonyms before it are removed.
    """

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One option of a resource.

    `value` is None for a secret, and if there is no value; `source` and `type` use Kafka's names,
    such as DEFAULT_CONFIG and LONG.
    """

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def default(self) -> bool:
        """Whether the option has Kafka's default value."""
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of one option.

    `operation`: SET; DELETE, which restores the default (`value` stays None); APPEND and SUBTRACT
    for options that are lists. `repr()` hides the value, as it may be a password.
    """

    name: str
    value: str | None = field(default=None, repr=False)
    operation: str = "SET"


def describe(
    resources: Sequence[ConfigResource],
    names: Sequence[str] | None,
    include_synonyms: bool,
    include_documentation: bool,
) -> AdminCall[dict[ConfigResource, dict[str, ConfigEntry]]]:
    """Describe configurations; only the options in `names`, if given."""
    wanted = [_resource(at) for at in some_of("resources", resources, ConfigResource, _CURE)]
    only = None if names is None else keys("names", names, "options' names")
    synonyms = flag("include_synonyms", include_synonyms)
    documentation = flag("include_documentation", include_documentation)

    def read(
        answer: d.DescribeConfigsResponse,
    ) -> Iterator[ItemResult[ConfigResource, dict[str, ConfigEntry]]]:
        for item in answer.results:
            at = _found(item.resource_type, item.resource_name)
            entries = {e.name: _entry(e) for e in item.configs}
            yield at, item.error_code, item.error_message, entries

    question: ApiCall[ConfigResource, d.DescribeConfigsResponse, dict[str, ConfigEntry]] = ApiCall(
        "the description of configurations",
        "configuration of",
        lambda left, _: d.DescribeConfigsRequest(
            [d.DescribeConfigsResource(RESOURCE_TYPES[at.type], at.name, only) for at in left],
            synonyms,
            documentation,
        ),
        d.DescribeConfigsResponse,
        read,
        right="DESCRIBE_CONFIGS",
    )
    return _by_whom(question, wanted)


def alter(
    changes: Mapping[ConfigResource, Sequence[AlterConfigOp]], validate_only: bool
) -> AdminCall[dict[ConfigResource, None]]:
    """Change some options and keep all others."""
    given = mapping("changes", changes, "a dict of lists of AlterConfigOp by ConfigResource")
    some_of("changes", list(given), ConfigResource, _CURE)
    wanted = {_resource(at): _changes(at, ops) for at, ops in given.items()}
    only_checked = flag("validate_only", validate_only)

    def read(
        answer: a.IncrementalAlterConfigsResponse,
    ) -> Iterator[ItemResult[ConfigResource, None]]:
        for item in answer.responses:
            at = _found(item.resource_type, item.resource_name)
            yield at, item.error_code, item.error_message, None

    question: ApiCall[ConfigResource, a.IncrementalAlterConfigsResponse, None] = ApiCall(
        "the change of configurations",
        "configuration of",
        lambda left, _: a.IncrementalAlterConfigsRequest(
            [a.AlterConfigsResource(RESOURCE_TYPES[at.type], at.name, wanted[at]) for at in left],
            only_checked,
        ),
        a.IncrementalAlterConfigsResponse,
        read,
        right="ALTER_CONFIGS",
        changes=not only_checked,
    )
    return _by_whom(question, wanted)


def resources(types: Sequence[str] | None) -> AdminCall[list[ConfigResource]]:
    """List the resources with a configuration (KIP-1142).

    Brokers before 4.1 only list client metrics (KIP-714), and reject other types.
    """
    given = [] if types is None else keys("types", types, "types of resources")
    wanted = {choice("types", t, RESOURCE_TYPES) for t in given} or set(RESOURCE_TYPES)
    # Version 0 has no types, and only lists client metrics. So the types are always sent, unless
    # only client metrics are wanted: a broker with version 0 then raises an error.
    metrics_alone = wanted == {METRICS}
    numbers = [] if metrics_alone else sorted(RESOURCE_TYPES[t] for t in wanted)
    question: ApiCall[None, r.ListConfigResourcesResponse, list[ConfigResource]] = ApiCall(
        "the list of configurations",
        "",
        lambda *_: r.ListConfigResourcesRequest(numbers),
        r.ListConfigResourcesResponse,
        lambda answer: [
            (
                None,
                0,
                None,
                [_found(c.resource_type, c.resource_name) for c in answer.config_resources],
            )
        ],
        right="DESCRIBE_CONFIGS",
        newest=0 if metrics_alone else None,
    )
    asked = one(question)

    def flow(engine: AdminEngine, deadline: float) -> Flow[list[ConfigResource]]:
        try:
            found = yield from asked.flow(engine, deadline)
        except UnsupportedVersionError as error:
            error.add_note(f"Brokers before 4.1 only list client metrics: types=[{METRICS!r}].")
            raise
        return sorted({*found})

    return AdminCall(asked.what, flow)


_CURE = 'use ConfigResource("TOPIC", name)'


def _resource(at: ConfigResource) -> ConfigResource:
    choice("the type of a ConfigResource", at.type, RESOURCE_TYPES)
    text("the name of a ConfigResource", at.name)
    if at.type in _ON_BROKERS and at.name:
        # Check the length first, because `int` raises for thousands of digits.
        plain = at.name.isdecimal() and len(at.name) <= 10
        if not plain or int(at.name) > INT32_MAX:
            raise ConfigurationError(
                f"the name of a broker is its id, for example '1', not {shown(at.name)}"
            )
    return at


def _changes(at: ConfigResource, given: Any) -> list[a.AlterableConfig]:
    found = some_of(f"changes of {at}", given, AlterConfigOp, "use AlterConfigOp(name, value)")
    made = []
    for op in found:
        name = text(f"a name in changes of {at}", op.name)
        operation = OPERATIONS.index(
            choice(f"operation on {name} of {at}", op.operation, OPERATIONS)
        )
        if op.operation == "DELETE":
            if op.value is not None:
                raise refusal(f"value of {name} of {at}", "None for a DELETE", op.value)
            made.append(a.AlterableConfig(name, operation, None))
        else:
            made.append(a.AlterableConfig(name, operation, setting(name, str(at), op.value)))
    return made


_ON_BROKERS = ("BROKER", "BROKER_LOGGER")


def _by_whom(
    question: ApiCall[ConfigResource, Any, Any], wanted: Iterable[ConfigResource]
) -> AdminCall[Any]:
    """Return a call that asks each broker for its own settings, and any broker for the rest."""
    own: dict[int, list[ConfigResource]] = {}
    others = []
    for at in wanted:
        if at.type in _ON_BROKERS and at.name:
            own.setdefault(int(at.name), []).append(at)
        else:
            others.append(at)

    def flow(engine: ClientEngine, deadline: float) -> Flow[dict[ConfigResource, Any]]:
        found: list[ItemResults[ConfigResource, Any]] = []
        found.append((yield from call_any(engine.brokers, question, others, deadline)))
        found += (
            yield from call_brokers(engine.brokers, lambda _: question, own, deadline)
        ).values()
        return merged(found)

    return AdminCall(question.what, flow)


def _found(kind: int, name: str) -> ConfigResource:
    return ConfigResource(_TYPE_NAMES.get(kind, str(kind)), name)


def _entry(e: d.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        e.name,
        e.value,
        _named(SOURCES, e.config_source),
        e.read_only,
        e.is_sensitive,
        _named(TYPES, e.config_type),
        tuple(ConfigSynonym(s.name, s.value, _named(SOURCES, s.source)) for s in e.synonyms),
        e.documentation or None,
    )


def _named(names: tuple[str, ...], number: int) -> str:
    """Return the name of a number, or the number if this release has no name for it."""
    return names[number] if 0 <= number < len(names) else str(number)
