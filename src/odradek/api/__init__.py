"""Public clients: one facade per client, one line per method; `clients/` does the work.

In: calls with timeouts. Out: results, or errors of `common`. Must not: hold logic, a clock or a
socket; those are the hosts'.
"""
