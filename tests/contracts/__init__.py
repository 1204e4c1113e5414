"""Suites that every implementation of a protocol passes. They know the protocol's docstrings and nothing else."""
