"""Every option of the clients: its name, type, default, check and other clients' names for it."""
