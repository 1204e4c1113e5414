"""Runs that go on for minutes."""
