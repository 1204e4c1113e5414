"""Connecting a host: the plan, doing and undoing it, its record, and edits that keep what a person wrote."""
