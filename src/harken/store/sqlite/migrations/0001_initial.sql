-- Times are microseconds since 1970 in UTC. Order is never taken from a time.

CREATE TABLE mailboxes (
    name TEXT PRIMARY KEY,
    head INTEGER NOT NULL          -- highest sequence number handed out; written in the inserting transaction
) WITHOUT ROWID;

CREATE TABLE messages (
    n            INTEGER PRIMARY KEY,  -- order of receipt over all mailboxes
    id           TEXT NOT NULL UNIQUE,
    mailbox      TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    source       TEXT NOT NULL,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    trust        TEXT NOT NULL,
    attention    TEXT NOT NULL,
    priority     TEXT NOT NULL,
    sender_id    TEXT NOT NULL,
    sender_name  TEXT NOT NULL,
    upstream_id  TEXT NOT NULL,
    sent_at      INTEGER,
    refers_to    TEXT,
    meta         TEXT NOT NULL,
    text         TEXT NOT NULL
);
-- The channel rides along so that counting unread per channel never touches the table.
CREATE INDEX messages_by_seq ON messages (mailbox, seq, channel);
CREATE INDEX messages_urgent ON messages (mailbox, seq) WHERE priority = 'high';

-- Outlives the messages: what was received once is known for ever.
CREATE TABLE dedup (
    key     BLOB PRIMARY KEY,
    message TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    source TEXT NOT NULL,
    feed   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (source, feed)
) WITHOUT ROWID;

CREATE TABLE cursors (
    consumer TEXT NOT NULL,
    mailbox  TEXT NOT NULL,
    seq      INTEGER NOT NULL,     -- everything up to here is final for this consumer
    PRIMARY KEY (consumer, mailbox)
) WITHOUT ROWID;

CREATE TABLE deliveries (
    consumer    TEXT NOT NULL,
    mailbox     TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    id          TEXT NOT NULL UNIQUE,
    message     TEXT NOT NULL,
    state       TEXT NOT NULL,
    surface     TEXT NOT NULL,
    session     TEXT NOT NULL,
    carrier     TEXT NOT NULL,     -- the call or hook that handed it over
    offers      INTEGER NOT NULL,
    offered_at  INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    seen_at     INTEGER,
    evidence    TEXT NOT NULL DEFAULT '',
    answered_at INTEGER,
    reason      TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (consumer, mailbox, seq)
) WITHOUT ROWID;
CREATE INDEX deliveries_by_message ON deliveries (message);
CREATE INDEX deliveries_open ON deliveries (session) WHERE state = 'offered';

CREATE TABLE outbox (
    n            INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    message      TEXT NOT NULL,
    body         TEXT NOT NULL,
    author       TEXT NOT NULL,
    state        TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    error        TEXT NOT NULL DEFAULT '',
    upstream_id  TEXT NOT NULL DEFAULT '',
    call_edge    TEXT,
    call_request TEXT
);
CREATE UNIQUE INDEX outbox_by_call ON outbox (call_edge, call_request) WHERE call_edge IS NOT NULL;
CREATE INDEX outbox_waiting ON outbox (due_at) WHERE state = 'queued';
CREATE INDEX outbox_by_message ON outbox (message);

CREATE TABLE senders (
    source TEXT NOT NULL,
    sender TEXT NOT NULL,
    trust  TEXT NOT NULL,
    PRIMARY KEY (source, sender)
) WITHOUT ROWID;

CREATE TABLE mutes (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    until INTEGER,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE events (
    n       INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    message TEXT,
    data    TEXT NOT NULL
);

CREATE TABLE progress (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO progress VALUES ('indexed', 0);

-- Filled after accepting, never in the same transaction: see index().
CREATE VIRTUAL TABLE messages_text USING fts5 (
    text, sender_name, channel,
    content = 'messages', content_rowid = 'n', tokenize = "unicode61 remove_diacritics 2"
);
