"""Gemini CLI: how its hooks speak and how it is connected. It has no way to be woken."""
