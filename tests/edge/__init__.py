"""The edge, run as hosts run it, against a daemon that follows a script."""
