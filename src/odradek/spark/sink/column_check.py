"""Check that all values of a column fit a schema's type, before the first one is written.

In: two Arrow types. Out: nothing, or `SinkSchemaError` with the place. Must not: read values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.spark.sink.sink_errors import SinkSchemaError

if TYPE_CHECKING:
    import pyarrow as pa


def check_type(
    wanted: pa.DataType, given: pa.DataType, where: str, may_lack: Callable[[str], bool]
) -> None:
    """Raise `SinkSchemaError` if a column doesn't match a schema's type.

    `may_lack(place)`: whether the field may be missing. A number's type may be narrower than in the
    schema. A place looks like `value.lines's items.sku`.
    """
    import pyarrow as pa

    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        _check_struct(wanted, given, where, may_lack)
        return
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        if given.key_type != wanted.key_type:
            raise _misfit(where, wanted, given)
        check_type(wanted.item_type, given.item_type, f"{where}'s values", may_lack)
        return
    lists = pa.types.is_list(wanted) and pa.types.is_list(given)
    if lists and not pa.types.is_map(given):
        check_type(wanted.value_type, given.value_type, f"{where}'s items", may_lack)
        return
    if not _holds(wanted, given):
        raise _misfit(where, wanted, given)


def _check_struct(
    wanted: pa.StructType, given: pa.StructType, where: str, may_lack: Callable[[str], bool]
) -> None:
    there = {one.name: one.type for one in given}
    for name in there.keys() - {one.name for one in wanted}:
        raise SinkSchemaError(
            f"{where}.{name} isn't in the writer schema: drop it, or register a version of the "
            "schema that has it"
        )
    for one in wanted:
        place = f"{where}.{one.name}"
        if one.name in there:
            check_type(one.type, there[one.name], place, may_lack)
        elif not may_lack(place):
            raise SinkSchemaError(
                f"{place} is missing, and the writer schema has no default for it (fields of the "
                f"column: {', '.join(there) or 'none'})"
            )


def _holds(wanted: pa.DataType, given: pa.DataType) -> bool:
    """Return whether every possible value of a column's type fits the schema's type."""
    import pyarrow as pa

    t = pa.types
    if t.is_null(given):
        return True
    if t.is_integer(given):
        wide = t.is_integer(wanted) and wanted.bit_width >= given.bit_width
        return bool(wide or (t.is_float64(wanted) and given.bit_width <= 32))
    if t.is_floating(given):
        return bool(t.is_floating(wanted) and wanted.bit_width >= given.bit_width)
    if t.is_decimal(given):
        whole = given.precision - given.scale
        return bool(
            t.is_decimal(wanted)
            and wanted.scale >= given.scale
            and wanted.precision - wanted.scale >= whole
        )
    if t.is_timestamp(given):
        return bool(t.is_timestamp(wanted) and (wanted.tz is None) == (given.tz is None))
    if t.is_binary(given):
        return bool(t.is_binary(wanted) or t.is_fixed_size_binary(wanted))
    return bool(given == wanted)


def _misfit(where: str, wanted: pa.DataType, given: pa.DataType) -> SinkSchemaError:
    return SinkSchemaError(
        f"{where} is {given}, but the writer schema needs {wanted}: cast the column"
    )
