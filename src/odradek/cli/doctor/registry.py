"""Check whether a schema registry answers, accepts the credentials, and is a schema registry.

In: a registry client. Out: at most one finding, and one step for the doctor's table. Must not:
register or change anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cli.doctor.checks import OK, WRONG, Check
from odradek.cli.doctor.findings import Finding, Trouble
from odradek.cli.frame.results import counted
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.printable import cleaned, sentence
from odradek.serialization.errors import (
    RegistryAuthenticationError,
    RegistryUnreachableError,
    SchemaRegistryError,
)
from odradek.serialization.registry.client import SchemaRegistryClient, apicurio

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = "schema registry"
WHY = "Serializers and deserializers need the registry: records can neither be written nor read."


def check_registry(
    registry: SchemaRegistryClient, url: str, at: Callable[[str], SchemaRegistryClient]
) -> tuple[list[Finding], Check]:
    """Return the problem of a registry, if any, and the step. `at` returns a client for a URL."""
    try:
        subjects = registry.get_subjects()
    except (SchemaRegistryError, ConfigurationError) as error:
        finding = cleaned(_finding(error, url, at))
        return [finding], cleaned(Check(STEP, WRONG, f"{type(error).__name__}: {error}"))
    return [], cleaned(Check(STEP, OK, f"{url} has {counted(len(subjects), 'subject')}"))


def _finding(error: KafkaError, url: str, at: Callable[[str], SchemaRegistryClient]) -> Finding:
    what, cure = f"{error}", getattr(error, "cure", "")
    if isinstance(error, SchemaRegistryError):
        what = error.what
    if isinstance(error, RegistryAuthenticationError):
        what = f"The schema registry rejects this client: {sentence(what)}"
    elif isinstance(error, RegistryUnreachableError) and "TLS failed" in what:
        what = f"TLS with the schema registry fails: {sentence(what)}"
        cure = (
            "Set ssl.ca.location to the authority that signed the registry's certificate, and use "
            "a host name from that certificate."
        )
    elif isinstance(error, RegistryUnreachableError):
        what = f"The schema registry can't be used: {sentence(what)}"
    elif isinstance(error, SchemaRegistryError):
        better = _better(url, at)
        what = f"This isn't the URL of a registry with Confluent's REST API: {sentence(what)}"
        if better:
            cure = f"This is Apicurio Registry: set schema.registry.url to {better}."
    return Finding(Trouble.REGISTRY, what, WHY, cure)


def _better(url: str, at: Callable[[str], SchemaRegistryClient]) -> str | None:
    """Return the URL of Confluent's REST API on the same server, if it is Apicurio Registry."""
    better = apicurio(url.partition(",")[0])
    try:
        at(better).get_subjects()
    except KafkaError:
        return None
    return better
