"""The embedded store: one SQLite file, one writer thread, readers in a pool.

`store.py` is the class behind the contract; `writer.py` and `readers.py` own the connections; the other modules
hold the SQL of one noun each, as functions over an open transaction.
"""

from harken.store.sqlite.store import SqliteStore, open_store

__all__ = ["SqliteStore", "open_store"]
