"""Harken on a machine: connecting hosts, checking, the service, backups, uninstalling. It prints nothing."""
