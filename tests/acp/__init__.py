"""The Agent Client Protocol: a connection, an agent of our own, and the proxy."""
