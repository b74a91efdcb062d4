"""The scorecard: client libraries in processes of their own against the same simulated brokers.

`run` schedules cells (one library, one row, one run), `cell` runs one of them in a process and a
network namespace of its own, `rows` says what happens to the brokers and what is counted,
`brokers` are simulated ones, `clients` knows how each library's driver is started, and `table`
turns figures into the table. METHOD.md says what is measured and how each library is called.
"""
