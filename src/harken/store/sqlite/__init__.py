"""The embedded store: one SQLite file, one writer, readers in a pool.

`store.py` opens it, `connection.py` has the file, its schema and its errors. The nouns, with their SQL, are in
`store/sql`.
"""

from harken.store.sqlite.store import open_store

__all__ = ["open_store"]
