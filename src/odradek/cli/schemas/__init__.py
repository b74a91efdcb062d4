"""`odradek schemas`: list, show, check, register and delete schemas of a registry.

In: subjects, versions, files. Out: schemas in the registry, or the result of a change. Must not:
send a file that the serializers can't parse as a schema, or decide whether a schema is compatible.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import read_text, refuse
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable, StoredText, counted
from odradek.cli.schemas.frame import RegistryRun, changes, destroys, reads
from odradek.common.errors import KafkaError, MissingExtraError
from odradek.serialization.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    SchemaNotFoundError,
)
from odradek.serialization.registry.client import LATEST, LEVELS, SchemaRegistryClient
from odradek.serialization.registry.client import compatibility as compatible_with
from odradek.serialization.registry.schemas import (
    AVRO,
    JSON,
    KINDS,
    RegisteredSchema,
    Schema,
    SchemaReference,
)

app = overview("Schemas of a registry: list, show, versions, compatibility, register, delete.")

ENDINGS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""Types of schemas by file extension."""

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as flights-value.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The schema's file.")]
Version = Annotated[
    str, typer.Option(metavar="NUMBER", help="A version's number, or latest.", show_default=True)
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help=f"{', '.join(KINDS)} (default: by the file's ending, {', '.join(ENDINGS)}).",
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one references; may be repeated.",
    ),
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Let the registry normalize the schema first.")
]


@reads(app, "list")
def list_(
    run: RegistryRun,
    subject: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only subjects whose full name matches.")
    ] = None,
) -> Result:
    """List subjects, one per line.

    Example: odradek schemas list --subject 'flights-.*'
    """
    try:
        fits = re.compile(subject or ".*")
    except re.error as error:
        refuse(f"--subject: {subject!r} is not a valid regular expression: {error}")
    found = sorted(name for name in run.registry.get_subjects() if fits.fullmatch(name))
    return Result({"subjects": found}, found)


@reads(app)
def show(
    run: RegistryRun,
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT")] = None,
    version: Version = LATEST,
    id_: Annotated[
        int | None, typer.Option("--id", min=0, metavar="ID", help="A schema's id, not a subject.")
    ] = None,
) -> Result:
    """Print the text of a schema: a subject's version, or the schema with an id.

    With --json also its id, its type and its references. A pipe or a file receives the text
    unchanged; a terminal shows control characters escaped.

    Example: odradek schemas show flights-value --version 2
    """
    if (subject is None) == (id_ is None):
        refuse("name either a subject, or an id with --id")
    if id_ is not None:
        schema = run.registry.get_schema(id_)
        return Result({"id": id_, **_document(schema)}, [StoredText(schema.schema_str)])
    found = run.registry.get_version(subject or "", _version(version))
    document = {**_place(found), **_document(found.schema)}
    return Result(document, [StoredText(found.schema.schema_str)])


@reads(app)
def versions(run: RegistryRun, subject: Subject) -> Result:
    """List the versions of a subject, with their ids and types.

    Example: odradek schemas versions flights-value
    """
    listed = run.registry.get_versions(subject)
    found = [run.registry.get_version(subject, one) for one in listed]
    rows = [(one.version, one.schema_id, one.schema.schema_type) for one in found]
    document = [{**_place(one), "type": one.schema.schema_type} for one in found]
    table = ResultTable(("VERSION", "ID", "TYPE"), rows, "The subject has no versions.")
    return Result({"subject": subject, "versions": document}, [table])


@changes(app)
def compatibility(
    run: RegistryRun,
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT")] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A schema's file to check.")
    ] = None,
    version: Version = LATEST,
    type_: Type = None,
    reference: References = None,
    set_: Annotated[
        str | None,
        typer.Option("--set", metavar="LEVEL", help=f"Set the level: {', '.join(LEVELS)}."),
    ] = None,
) -> Result:
    """Check whether a schema may follow a version of a subject, or show or set the level.

    Without a file, the subject's compatibility level is shown or set; without a subject, the
    registry's. The exit status is 1 for a schema that isn't compatible.

    Example: odradek schemas compatibility flights-value wider.avsc
    """
    if file is not None and subject is not None:
        if set_ is not None:
            refuse("--set changes the level, and FILE checks a schema: use one of them")
        schema = _schema(run, file, type_, reference)
        fits, reasons = compatible_with(run.registry, subject, schema, _version(version))
        document = {"subject": subject, "compatible": fits, "reasons": reasons}
        if fits:
            return Result(document, [f"{file} is compatible with {subject} ({version})."])
        why = "; ".join(reasons) or "the registry returns no reason"
        error = IncompatibleSchemaError(f"{file} isn't compatible with {subject}: {why}", None, "")
        return Result(document, [], {subject: error})
    if set_ is not None:
        if set_.upper() not in LEVELS:
            refuse(f"--set must be one of {', '.join(LEVELS)}, not {set_!r}")
        whose = {"subject": subject, "level": set_.upper()}
        whose_level = f"the compatibility level{'' if subject is None else f' of {subject}'}"
        if run.dry_run:
            shown = f"Would set {whose_level} to {set_.upper()}."
            return Result({"dry_run": True, **whose}, [shown])
        level = run.registry.set_compatibility(set_, subject)
        return Result({**whose, "level": level}, [f"Set {whose_level} to {level}."])
    level, own = _level(run, subject)
    shown = level if own or subject is None else f"{level} (the registry's default)"
    return Result({"subject": subject, "level": level, "own": own}, [shown])


@changes(app)
def register(
    run: RegistryRun,
    subject: Subject,
    file: File,
    type_: Type = None,
    reference: References = None,
    normalize: Normalize = False,
) -> Result:
    """Register a schema under a subject, unless it is registered already; print its id.

    With --dry-run, the registry only checks whether the schema is compatible.

    Example: odradek schemas register flights-value flights.avsc --dry-run
    """
    schema = _schema(run, file, type_, reference)
    if run.dry_run:
        return _would_register(run, subject, schema, normalize)
    made = run.registry.registered_schema(subject, schema, normalize)
    if made.version is None:
        made = run.registry.lookup_schema(subject, schema, normalize)
    said = f"Registered as version {made.version} of {subject}, with id {made.schema_id}."
    return Result(_place(made), [said])


def _would_register(run: RegistryRun, subject: str, schema: Schema, normalize: bool) -> Result:
    document: dict[str, Any] = {"dry_run": True, "subject": subject}
    try:
        known = run.registry.lookup_schema(subject, schema, normalize)
    except SchemaNotFoundError:
        pass
    else:
        said = f"Already registered as version {known.version} of {subject}."
        return Result({**document, **_place(known), "existed": True}, [said])
    try:
        fits, reasons = compatible_with(run.registry, subject, schema, LATEST)
    except SchemaNotFoundError:
        fits, reasons = True, []  # a new subject's first version always fits
    if fits:
        return Result({**document, "existed": False}, [f"Would register it under {subject}."])
    why = "; ".join(reasons) or "the registry returns no reason"
    error = IncompatibleSchemaError(f"the schema isn't compatible: {why}", None, "")
    return Result({**document, "existed": False}, [], {subject: error})


@destroys(app)
def delete(
    run: RegistryRun,
    subject: Subject,
    version: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Only this version (default: all).")
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option(
            "--permanent",
            help="Remove what was deleted before; records with its id can't be read any more.",
        ),
    ] = False,
) -> Result:
    """Delete a subject, or one of its versions. Records can still be read, unless --permanent.

    Example: odradek schemas delete flights-value --version 2 --yes
    """
    number = None if version is None else _version(version)
    what = subject if number is None else f"version {number} of {subject}"
    if run.dry_run:
        there = run.registry.get_versions(subject) if number is None else [number]
        document = {"dry_run": True, "subject": subject, "versions": there, "permanent": permanent}
        return Result(document, [f"Would delete {what} ({counted(len(there), 'version')})."])
    run.confirm(f"delete {what}{' permanently' * permanent}")
    if number is None:
        gone = run.registry.delete_subject(subject, permanent)
    else:
        numbered = run.registry.get_version(subject, number).version if number == LATEST else number
        gone = [run.registry.delete_version(subject, int(numbered or 0), permanent)]
    said = f"Deleted {what}{' permanently' * permanent}."
    return Result({"subject": subject, "versions": gone, "permanent": permanent}, [said])


def _level(run: RegistryRun, subject: str | None) -> tuple[str, bool]:
    """Return the compatibility level, and whether it was set for this subject."""
    if subject is None:
        return run.registry.get_compatibility(), False
    try:
        return run.registry.get_compatibility(subject), True
    except KafkaError as error:
        if getattr(error, "status", None) != 404:
            raise
        return run.registry.get_compatibility(), False


def _version(text: str) -> int | str:
    if text == LATEST:
        return text
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 2**31):
        refuse(f"--version must be a number from 1 on, or latest, not {text!r}")
    return int(text)


def _schema(run: RegistryRun, file: Path, kind: str | None, references: list[str] | None) -> Schema:
    """Read and parse a schema's file. Raises `UsageError`."""
    found = (kind or ENDINGS.get(file.suffix.lower(), "")).upper()
    if found not in KINDS:
        wrong = f"--type {kind!r}" if kind else f"the ending of {file}"
        refuse(f"{wrong} isn't a type of schema: use --type {'|'.join(KINDS)}")
    text = read_text(file).removesuffix("\n")  # editors and `show` add a final line break
    schema = Schema(text, found, tuple(map(_reference, references or ())))
    try:
        _parse(run.registry, schema)
    except InvalidSchemaError as error:
        refuse(f"{file}: {error}")
    return schema


def _parse(registry: SchemaRegistryClient, schema: Schema) -> None:
    """Parse a schema as the serializers do. Raises `InvalidSchemaError`.

    The text of a Protobuf schema isn't parsed, because Python has no parser of it. Without the
    extra `schemas`, the text must only be JSON.
    """
    # Imported here because other commands don't need these modules.
    from odradek.serialization.avro.parsing import json_of as avro_of
    from odradek.serialization.avro.parsing import parsed_avro
    from odradek.serialization.json.serializers import JsonChecks
    from odradek.serialization.json.serializers import json_of as json_schema_of

    if schema.schema_type == AVRO:
        avro_of(schema)
        with suppress(MissingExtraError):
            parsed_avro(schema, registry)
    elif schema.schema_type == JSON:
        json_schema_of(schema)
        with suppress(MissingExtraError):
            JsonChecks(registry).prepare(schema)


def _reference(word: str) -> SchemaReference:
    name, _, where = word.partition("=")
    subject, _, version = where.rpartition(":")
    if not (name and subject and version.isascii() and version.isdigit()):
        refuse(f"--reference: expected NAME=SUBJECT:VERSION, not {word!r}")
    return SchemaReference(name, subject, int(version[:10]))


def _place(found: RegisteredSchema) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.schema_id,
        "guid": found.guid,
    }


def _document(schema: Schema) -> dict[str, Any]:
    return {
        "type": schema.schema_type,
        "schema": schema.schema_str,
        "references": schema.references,
    }
