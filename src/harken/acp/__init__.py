"""The Agent Client Protocol, as far as Harken speaks it: its nouns, a connection for either side, and a client."""
