"""Tests of the rules: reading, matching, deciding. All of it is pure, so nothing here opens anything."""
