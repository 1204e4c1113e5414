-- What one daemon does for all that share a store: which one, in which tenure, and until when.
CREATE TABLE leases (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
