"""Ingest: from a source's draft to a message that is safe to store.

Pure functions: no I/O, no clock, no store. `prepare` composes the others: sanitise (over markup), redact, identify,
trust, route. Sources yield the drafts and never import this package; the daemon brings both together.
"""
