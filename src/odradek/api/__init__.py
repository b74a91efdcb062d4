"""What users import: one facade per client, one line per method; the work is done in `clients/`.

In: calls with timeouts. Out: results or errors of `common`. Must not: hold logic, a clock or a
socket of its own: hosts have those.
"""
