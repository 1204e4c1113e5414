"""Being told of changes by Microsoft instead of asking every few seconds, where others can reach this machine.

A notification says only that something changed. It makes a feed look at once, with the same code as always, so what
arrives, in which order and how far was read does not depend on it. `tidings.py` is what a feed waits on, `door.py` what
Microsoft posts to, `keeping.py` the subscriptions behind it. Above are the sources and `daemon/graph.py`.
"""
