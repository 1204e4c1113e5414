-- The daemons that have the store open, as each says of itself, and when it last did.
CREATE TABLE daemons (
    id         TEXT PRIMARY KEY,
    machine    TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    sessions   TEXT NOT NULL
) WITHOUT ROWID;
