"""One module for each service that posts: how it signs, how it names a delivery, and what people read of it.

Pure: each takes a post and returns what it says. They know nothing of each other; `registry.py` above knows them all.
"""
