"""Commands about a cluster, its brokers, their settings and users."""
