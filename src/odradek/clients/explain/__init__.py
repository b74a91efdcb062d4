"""`explain()`: what a client's engine says of itself in words, for every facade alike."""
