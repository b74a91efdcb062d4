"""The breakages of serialization: rows that depend on no other ones, and what is no row's fault."""

from __future__ import annotations

from rules_to_break import Breakage, broken

LINES = "serialization/json_lines.py"
VALUES = "serialization/json_values.py"
JSON = "tests/unit/serialization/test_json_columns.py"
ALIKE = f"{JSON}::test_a_row_reads_the_same_whatever_is_beside_it"
PROTOBUF = "tests/unit/serialization/test_protobuf_columns.py"

SERIALIZATION_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a time of JSON is read otherwise beside a bad row",
        "R-IN-4",
        LINES,
        "    if pc.all(pc.and_not(known, edge)).as_py() is False:",
        "    if False:",
        ALIKE,
    ),
    broken(
        "a date of JSON is read otherwise beside a bad row",
        "R-IN-4",
        LINES,
        "        if pa.types.is_date(kind) and pc",
        "        if False and pc",
        ALIKE,
    ),
    broken(
        "an integer without end is infinite where it is alone",
        "R-IN-4",
        LINES,
        "            if _has_any(found, _is_infinite):",
        "            if False:",
        ALIKE,
    ),
    broken(
        "a whole zero has a sign where it is alone",
        "R-IN-4",
        LINES,
        "                _has_any(found, _is_negative_zero)\n",
        "                False\n",
        ALIKE,
    ),
    broken(
        "a number that nobody asked for makes no row bad where it is alone",
        "R-IN-4",
        LINES,
        "                if _has_long_numbers(shown):",
        "                if False:",
        ALIKE,
    ),
    broken(
        "a small float is rounded once where it is alone",
        "R-IN-4",
        LINES,
        "pa.float64() if pa.types.is_float32(kind) else kind",
        "kind",
        ALIKE,
    ),
    broken(
        "nanoseconds are lost",
        "R-IN-4",
        VALUES,
        "* 1000 + nanos",
        "* 1000",
        ALIKE,
    ),
    broken(
        "a row of JSON that is deep depends on its neighbours",
        "R-SP",
        "spark/values/decoding.py",
        "                if found is not None:",
        "                if False:",
        "tests/unit/spark/test_values.py::test_a_row_does_not_depend_on_those_beside_it",
    ),
    broken(
        "a time beyond all years in UTC fails all rows",
        "R-IN-4",
        VALUES,
        "        except (_MisfitError, ValueError, OverflowError, RecursionError):\n"
        '            problems.append(f"the value',
        "        except (_MisfitError, ValueError, RecursionError):\n"
        '            problems.append(f"the value',
        f"{JSON}::test_a_time_that_is_beyond_all_years_in_utc_is_its_own_rows_error",
    ),
    broken(
        "a value that Python can't hold fails all rows that are written",
        "R-IN-4",
        "serialization/converted_column.py",
        "    except (KeyError, ValueError, OverflowError) as error:",
        "    except RecursionError as error:",
        f"{JSON}::test_a_value_that_python_cannot_hold_is_its_own_rows_error",
    ),
    broken(
        "an extension of Protobuf is nobody's",
        "R-IN-4",
        "serialization/protobuf_plan.py",
        "entry or descriptor.is_extendable",
        "entry",
        f"{PROTOBUF}::test_the_kernel_takes_no_more_than_protobuf",
    ),
    broken(
        "a fraction loses its end in Protobuf",
        "R-IN-1",
        "serialization/protobuf_shapes.py",
        "not isinstance(given, int | Decimal) or given != int(given)",
        "not isinstance(given, int | float | Decimal)",
        f"{PROTOBUF}::test_what_is_no_number_or_boolean_is_taken_for_none",
    ),
    broken(
        "a fraction loses its end in Avro",
        "R-IN-1",
        "serialization/avro_columns.py",
        "        if found[1] or is_bytes(parsed):",
        "        if True:",
        "tests/unit/serialization/test_columns.py::test_what_would_only_fit_changed_does_not_fit",
    ),
    broken(
        "a few bytes of nulls keep Python at work for seconds",
        "R-IN-4",
        "serialization/json_room.py",
        "        return self._least(given) > self",
        "        return False and self",
        f"{JSON}::test_a_row_of_many_nulls_is_arrow_s_alone",
    ),
    broken(
        "any number is a boolean in Protobuf",
        "R-IN-1",
        "serialization/protobuf_shapes.py",
        "    if not isinstance(given, bool):",
        "    if False:",
        f"{PROTOBUF}::test_what_is_no_number_or_boolean_is_taken_for_none",
    ),
    broken(
        "a missing package is each row's fault",
        "R-IN-4",
        "serialization/avro.py",
        "    parse = fastavro().parse_schema  # what",
        "    parse = lambda *a, **k: fastavro().parse_schema(*a, **k)  # what",
        "tests/unit/serialization/test_columns.py::test_a_missing_package_is_no_row_s_fault",
    ),
    broken(
        "headers that can be read once are lost",
        "R-IN-1",
        "serialization/record_writing.py",
        "return list(headers) if isinstance(headers, Iterator) else headers",
        "return headers",
        "tests/unit/serialization/test_clients_with_serializers.py"
        "::test_headers_of_any_kind_go_along",
    ),
    broken(
        "a dead letter of Spark's that is too large ends the query",
        "R-SP",
        "spark/sink/dead_letters.py",
        "isinstance(error, TOO_LARGE) and letter.cut(batch)",
        "False",
        "tests/unit/spark/test_dead_letters.py"
        "::test_a_letter_that_is_too_large_goes_without_what_is_large",
    ),
    broken(
        "a broken package is said to be missing",
        "R-HO-1",
        "common/imports.py",
        " or (error.name != package and package not in SHARED)",
        "",
        "tests/unit/common/test_imports.py::test_a_broken_package_is_not_said_to_be_missing",
    ),
)
