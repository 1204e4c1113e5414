"""Tests of the command line: the real program, in processes of its own, against a real daemon."""
