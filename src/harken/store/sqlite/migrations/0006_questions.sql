-- Messages whose senders wait for an answer. A row goes when the answer has left, or is not needed.
CREATE TABLE questions (
    message      TEXT PRIMARY KEY,
    mailbox      TEXT NOT NULL,
    source       TEXT NOT NULL,
    conversation TEXT NOT NULL,
    asked_at     INTEGER NOT NULL,
    sender       TEXT NOT NULL,
    tried        TEXT NOT NULL DEFAULT '',    -- the ways that were gone to tell of it, with commas between
    reminders    INTEGER NOT NULL DEFAULT 0,  -- how often somebody was told of it
    due_at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX questions_by_time ON questions (mailbox, asked_at);
CREATE INDEX questions_due ON questions (due_at);
CREATE INDEX questions_by_conversation ON questions (source, conversation);
