"""`odradek demo`: sends a year of flights while the cluster moves to other addresses.

`command` needs the extra `cli`; `minimal_demo` is the simulated demo without it.
"""
