"""Options of the source: names, defaults, meanings, and the functions that read their texts."""
