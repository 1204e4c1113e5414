"""Runs: an action carried out by a headless agent, in its host's own jail.

What a jail is, is said here (`jail`); each host builds its own. Above is the daemon, below the store.
"""
