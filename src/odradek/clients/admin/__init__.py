"""The admin client: topics and cluster, one call at a time, each retried until its deadline."""
