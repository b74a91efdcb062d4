"""Work on records by key: what may run, what may be committed, what is tried again."""
