"""The scorecard: client libraries in separate processes with the same simulated brokers.

`run` schedules cells (one library, one row, one run), `cell` runs one of them in its own process
and network namespace, `rows` defines the brokers' faults and the figures, `brokers` are simulated
ones, `clients` knows how each library's driver is started, and `table` turns figures into the
table. METHOD.md says what is measured and how each library is called.
"""
