"""Daemons that share a store in PostgreSQL."""
