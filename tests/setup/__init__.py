"""Tests of Harken on a machine: the service, connecting, backups."""
