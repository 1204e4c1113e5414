-- Messages that were accepted and enter their mailbox later; those that were withdrawn before are kept for a while.
CREATE TABLE scheduled (
    n            INTEGER PRIMARY KEY,  -- order in which they were accepted
    id           TEXT NOT NULL UNIQUE,       -- that the message will have
    mailbox      TEXT NOT NULL,
    message      TEXT NOT NULL,              -- as it will be stored, as JSON
    accepted_at  INTEGER NOT NULL,
    due_at       INTEGER,                    -- not before
    occasion     TEXT NOT NULL,              -- what it waits for beside: time, idle or turn
    turns        TEXT NOT NULL DEFAULT '{}', -- by session, the turn that has to end, as JSON
    withdrawn_by TEXT NOT NULL DEFAULT '',
    withdrawn_at INTEGER
);
CREATE INDEX scheduled_waiting ON scheduled (due_at, n) WHERE withdrawn_at IS NULL;
