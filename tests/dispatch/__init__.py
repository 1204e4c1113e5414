"""Bells and wakes: who is told that something waits, without being asked."""
