"""Satellites: machines without a store that are joined to a main daemon."""
