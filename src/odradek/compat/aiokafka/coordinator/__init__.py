"""aiokafka's package `coordinator`; only its assignors are implemented."""
