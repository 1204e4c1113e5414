"""The hooks of agent hosts: what each run of one means, what it is told, and the connections it comes by.

`desk.py` decides, `connection.py` serves one run, `line.py` serves a program that waits to wake its session. How a
host speaks is in `hosts/`; the text comes from `composer.py`.
"""
