"""What every room shares: types, errors, configuration, backoff, events. Imports no other room."""
