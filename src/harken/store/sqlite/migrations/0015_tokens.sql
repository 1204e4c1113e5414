-- What lets other machines in. Of the secret only a hash is here.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    digest     TEXT NOT NULL UNIQUE,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER,
    used_from  TEXT NOT NULL DEFAULT '',
    bound_to   TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
