"""The embedded store: one SQLite file, one writer thread, readers in a pool.

`store.py` is the class behind the contract; `writer.py` and `readers.py` own the connections; the other modules
hold one noun each: its SQL, as functions over an open transaction, and the class that runs them.
"""

from harken.store.sqlite.store import SqliteStore, open_store

__all__ = ["SqliteStore", "open_store"]
