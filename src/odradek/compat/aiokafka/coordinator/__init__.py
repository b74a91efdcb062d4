"""What programs of aiokafka's import of its coordinator: the assignors' names."""
