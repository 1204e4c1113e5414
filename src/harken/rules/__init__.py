"""Rules: what they are, how they are read, and what they decide about a message.

Deciding (`engine`, `match`) is pure. Who carries a decision out is above: `runs/`.
"""
