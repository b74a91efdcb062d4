"""What the client believes of the cluster, how it is kept up to date, and how it starts again.

In: metadata answers, failures, wishes of the clients. Out: an immutable snapshot (`cluster`) and a
signal when it changed. Must not: keep broker addresses anywhere else (R-MD-1).
"""
