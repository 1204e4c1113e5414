"""The daemon: the one place that knows both ends and joins them. `compose.py` is the composition root."""
