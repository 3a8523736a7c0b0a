"""A law of a user: a formula of columns, its parameters, and its unit of replication."""
