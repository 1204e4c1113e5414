"""The store that several daemons share: one schema of a PostgreSQL, one writer per daemon, readers in a pool.

`store.py` opens it, `connection.py` has its connections, its schema and its errors. The nouns, with their SQL, are in
`store/sql`.
"""
