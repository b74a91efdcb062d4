"""Names of aiokafka's coordinator that programs import: the assignors."""
