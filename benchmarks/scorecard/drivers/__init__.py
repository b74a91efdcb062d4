"""One driver for each library, and how those in compiled languages are built."""
