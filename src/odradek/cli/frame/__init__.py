"""Share the common parts of commands that look at a cluster or change it.

In: a function that calls an admin client. Out: a command with the common flags, profiles, tables,
JSON, questions and exit statuses (docs/commands.md). Must not: know any single command.
"""
