"""Common parts of commands that inspect or change a cluster.

In: a function that calls an admin client. Out: a command with the common flags, profiles, tables,
JSON, confirmations and exit statuses (docs/commands.md). Must not: depend on a single command.
"""
