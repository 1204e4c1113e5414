"""What is known about each agent host: how it names itself, what keys its sessions, which surfaces reach it."""
