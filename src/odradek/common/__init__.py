"""Types, errors, options, backoff and events that all packages share.

In: configurations, arguments, events. Out: checked values, exceptions, log lines. Must not: import
another package of Odradek.
"""
