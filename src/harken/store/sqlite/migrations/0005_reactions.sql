-- One row: what decides besides the rules. `revision` changes with everything that a decision may follow from.
CREATE TABLE rule_state (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    revision  INTEGER NOT NULL,
    judged    INTEGER NOT NULL,    -- messages.n up to which every message was judged
    is_paused INTEGER NOT NULL,
    text      TEXT                 -- the rules that the person put in force; here, because files can be written by many
);
-- Mail that was here before there were rules is not judged.
INSERT INTO rule_state (one, revision, judged, is_paused)
SELECT 1, 0, coalesce(max(n), 0), 0 FROM messages;

CREATE TABLE verdicts (
    message TEXT NOT NULL,
    rule    TEXT NOT NULL,
    place   INTEGER NOT NULL,      -- order in which the rules were judged
    mode    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason  TEXT NOT NULL,
    earlier TEXT,
    digest  BLOB NOT NULL,
    action  TEXT,
    at      INTEGER NOT NULL,
    PRIMARY KEY (message, rule)
) WITHOUT ROWID;

CREATE TRIGGER verdicts_go AFTER DELETE ON messages
BEGIN
    DELETE FROM verdicts WHERE message = OLD.id;
END;

-- When a rule fired last: for anything (an empty digest), and for a content.
CREATE TABLE rule_windows (
    rule    TEXT NOT NULL,
    digest  BLOB NOT NULL,
    message TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (rule, digest)
) WITHOUT ROWID;
CREATE INDEX rule_windows_by_time ON rule_windows (at);

-- Counted as they happen, and for ever: verdicts go with their messages.
CREATE TABLE rule_counts (
    rule    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count   INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (rule, outcome)
) WITHOUT ROWID;

CREATE TABLE actions (
    n          INTEGER PRIMARY KEY,  -- order in which they were made
    id         TEXT NOT NULL UNIQUE,
    rule       TEXT NOT NULL,
    mode       TEXT NOT NULL,
    message    TEXT NOT NULL,
    state      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    work       TEXT,                 -- the order, as JSON
    expires_at INTEGER,
    decided_at INTEGER,
    decided_by TEXT NOT NULL DEFAULT '',
    reason     TEXT NOT NULL DEFAULT '',
    run        TEXT,
    asked_key  TEXT                  -- what the person's program called it, so that it is asked for once
);
CREATE UNIQUE INDEX actions_by_key ON actions (asked_key) WHERE asked_key IS NOT NULL;
CREATE INDEX actions_by_state ON actions (state);
CREATE INDEX actions_by_message ON actions (message);

CREATE TABLE runs (
    n          INTEGER PRIMARY KEY,  -- order in which they began
    id         TEXT NOT NULL UNIQUE,
    action     TEXT NOT NULL,
    rule       TEXT NOT NULL,
    message    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    workdir    TEXT NOT NULL,
    tools      TEXT NOT NULL,
    state      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    pid        INTEGER NOT NULL,
    leftover   TEXT NOT NULL,
    ended_at   INTEGER,
    exit_code  INTEGER,
    turns      INTEGER NOT NULL,
    denied     TEXT NOT NULL,
    answer     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    ancestry   TEXT NOT NULL         -- its rule, then those that led to its message: a chain outlives its messages
);
-- One run per folder at a time, whoever starts it.
CREATE UNIQUE INDEX runs_by_folder ON runs (workdir) WHERE state = 'running' AND workdir <> '';
CREATE INDEX runs_running ON runs (message) WHERE state = 'running';
CREATE INDEX runs_by_message ON runs (message);
