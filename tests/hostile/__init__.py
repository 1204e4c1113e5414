"""Texts that try to leave the frame that Harken puts around them, on every way to a model."""
