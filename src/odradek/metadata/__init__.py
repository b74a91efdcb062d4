"""Keep the client's view of the cluster up to date, and rebootstrap when all brokers are lost.

In: metadata responses, failures, requests of the clients. Out: an immutable snapshot (`cluster`),
and a signal when it changed. Must not: store broker addresses outside the snapshot (R-MD-1).
"""
