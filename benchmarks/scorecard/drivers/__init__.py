"""One driver for each library, and how drivers in compiled languages are built."""
