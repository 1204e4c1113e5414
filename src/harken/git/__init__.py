"""git: asking it, and what a repository's settings could make it start. It knows no host and no task."""
