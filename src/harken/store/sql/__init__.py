"""What stores in a database have in common: each noun's SQL, as functions over an open transaction, and its class.

The statements are those that SQLite and PostgreSQL both take. What is a backend's own (files, connections, schemas, the
index of texts) is in `store/sqlite` and `store/postgres`, which put a store together.
"""
