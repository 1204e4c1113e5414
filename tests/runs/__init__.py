"""Runs: real processes, steered from their prompts."""
