"""Tests of tasks on disk: real git repositories, no daemon."""
