"""The calls of the admin client.

In: arguments of a call. Out: an `AdminCall`, which sends its requests and retries them until its
deadline.
"""
