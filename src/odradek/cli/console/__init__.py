"""Kafka's console tools with Odradek's engine: `odradek produce` and `odradek consume`.

In: a command line with the flags of Kafka's own tools, standard input. Out: records, in either
direction, and an exit status. `properties` reads configurations, `lines` converts lines to records
and `formatting` records to lines; `produce` and `consume` are the commands. Must not: decide when
to retry; the clients do (KIP-580 names these tools, R-RT-1).
"""
