"""Parts that the formats share for whole Arrow columns."""
