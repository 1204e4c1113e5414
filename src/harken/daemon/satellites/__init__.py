"""Machines without a store: the link to the main daemon, and what stands at either end of it."""
