"""One driver a library, and how those that have to be built are built."""
