"""Magpie, an agent program that exists only here: the whole of what Harken has to know of a host."""
