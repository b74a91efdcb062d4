"""Public clients: one class per client, whose methods pass their arguments to `clients/`.

In: calls with timeouts. Out: results, or errors of `common`. Must not: hold logic, a clock or a
socket: each client has an I/O host (its thread or event loop), which holds them.
"""
