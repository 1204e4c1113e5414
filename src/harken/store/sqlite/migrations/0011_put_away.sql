-- What you were shown as needing you, and put away. A key names one occasion: the next one is shown again.
CREATE TABLE put_away (
    key TEXT PRIMARY KEY,
    at  INTEGER NOT NULL
) WITHOUT ROWID;
