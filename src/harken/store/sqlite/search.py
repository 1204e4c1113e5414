"""Full-text search: filled behind accepting, asked newest first.

Ranking by relevance over a common word costs seconds at a million messages, newest first costs microseconds and
is what people look for in an inbox.
"""

from __future__ import annotations

import re
import sqlite3

from harken.model import Message
from harken.store.contract.messages import Filter
from harken.store.sqlite.message_rows import COLUMNS, WHERE, from_row, parameters, within_memory
from harken.store.sqlite.transaction import Transaction

INDEXED = "SELECT value FROM progress WHERE name = 'indexed'"
MOST_CHARS = 8_000_000  # of what is indexed in one transaction: others wait for it
NEXT = f"""
SELECT count(*), max(n) FROM (
    SELECT n, sum(size) OVER (ORDER BY n) - size AS before
    FROM (SELECT n, length(text) AS size FROM messages WHERE n > ? ORDER BY n LIMIT ?)
) WHERE before < {MOST_CHARS}
"""
ADD = """
INSERT INTO messages_text (rowid, text, sender_name, channel)
SELECT n, text, sender_name, channel FROM messages WHERE n > ? AND n <= ? ORDER BY n
"""
REMOVE = "INSERT INTO messages_text (messages_text, rowid, text, sender_name, channel) VALUES ('delete', ?, ?, ?, ?)"
ADVANCE = "UPDATE progress SET value = ? WHERE name = 'indexed'"
SEARCH = f"""
SELECT {COLUMNS} FROM messages_text t JOIN messages m ON m.n = t.rowid
WHERE messages_text MATCH :query AND {WHERE} ORDER BY t.rowid DESC LIMIT :limit
"""
LAG = "SELECT count(*) FROM messages WHERE n > (SELECT value FROM progress WHERE name = 'indexed')"
IS_BEHIND = "SELECT EXISTS (SELECT 1 FROM messages WHERE n > (SELECT value FROM progress WHERE name = 'indexed'))"

_MAX_WORDS = 32
_WORD = re.compile(r"\w")


def as_query(text: str) -> str:
    """Return an FTS5 query for all the words of a text, none of them an operator; empty when there are no words."""
    words = [word for word in text.split() if _WORD.search(word)][:_MAX_WORDS]
    return " ".join('"' + word.replace('"', '""') + '"' for word in words)


def search(connection: sqlite3.Connection, text: str, where: Filter, limit: int) -> list[Message]:
    """Return messages that contain all the words, newest first."""
    # Half a surrogate pair cannot be stored, so it cannot be found either, and SQLite would not take it.
    query = as_query(text.replace("\x00", " ").encode(errors="replace").decode())
    if not query:
        return []
    if where.channel and (channel := as_query(where.channel)):
        # The filter alone would have to look at every message with a common word.
        query = f"({query}) AND channel : ({channel})"
    rows = connection.execute(SEARCH, {**parameters(where), "query": query, "limit": limit})
    return [from_row(row) for row in within_memory(rows)]


def index(tx: Transaction, limit: int) -> int:
    """Make the next messages searchable."""
    done = tx.execute(INDEXED).fetchone()[0]
    count, last = tx.execute(NEXT, (done, limit)).fetchone()
    if count:
        # One statement: the texts need not come through here, where they would hold up whoever accepts more.
        tx.execute(ADD, (done, last))
        tx.execute(ADVANCE, (last,))
    return int(count)


def forget(tx: Transaction, rows: list[tuple[int, str, str, str]]) -> None:
    """Take deleted messages out of the index; only what was put in may be taken out."""
    done = tx.execute(INDEXED).fetchone()[0]
    tx.connection.executemany(REMOVE, [row for row in rows if row[0] <= done])


def is_behind(connection: sqlite3.Connection) -> bool:
    """Whether some messages are not searchable yet."""
    return bool(connection.execute(IS_BEHIND).fetchone()[0])


def lag(connection: sqlite3.Connection) -> int:
    """Return how many messages are not searchable yet."""
    return int(connection.execute(LAG).fetchone()[0])
