"""Harken: the inbox of coding agents."""

__version__ = "0.1.0"
