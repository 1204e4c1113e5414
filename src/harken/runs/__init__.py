"""Runs: an action carried out by a headless agent, in its host's own sandbox.

What a sandbox is, is said here (`sandbox`); each host builds its own. Above is the daemon, below the store.
"""
