"""The engines of producer, consumer and admin: everything they decide, without I/O or a clock."""
