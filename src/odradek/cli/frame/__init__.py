"""What the commands that look at a cluster or change it have in common.

In: a function that asks an admin client. Out: a command with the flags, profiles, tables, JSON,
questions and exit statuses of all (docs/commands.md). Must not: know what any one command does.
"""
