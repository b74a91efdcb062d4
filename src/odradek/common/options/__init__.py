"""Define every option of the clients: name, type, default, check, and names in other clients.

In: values that a user set. Out: checked values, or errors that name the option.
"""
