"""Hooks of every host, as their hosts run them: the real script, the real daemon, payloads as they were seen."""
