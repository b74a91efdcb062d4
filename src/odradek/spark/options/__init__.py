"""Options of the source: names, defaults and meanings, and how their texts are read."""
