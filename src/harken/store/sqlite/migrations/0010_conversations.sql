-- Messages of one thread, and what you did about them. What you did is kept with the message up to which you did it:
-- nothing has to be changed when somebody writes, and nothing can come in between.

-- What belongs together, and whose word each message is: said here and nowhere else. Edits, and mail for tasks, are shown
-- with the rest of their thread, and are no word in the conversation. Yours is what you are trusted with, and what its
-- author was known to be you when it came: it was seen by you from the beginning.
CREATE VIEW thread_messages AS
SELECT m.n, m.id, m.source, iif(m.thread = '', m.id, m.thread) AS thread, m.mailbox, m.seq,
    CASE WHEN m.mailbox LIKE 'task:%' THEN 'task'
        WHEN m.kind <> 'message' THEN 'edit'
        WHEN m.trust = 'owner' OR EXISTS (
            SELECT 1 FROM deliveries d
            WHERE d.consumer = 'watch' AND d.mailbox = m.mailbox AND d.seq = m.seq AND d.surface = 'own') THEN 'you'
        ELSE 'other' END AS role
FROM messages m WHERE m.mailbox NOT LIKE 'trial:%';

-- Filled after accepting, never in the same transaction; everything up to this number is in it.
INSERT INTO progress VALUES ('conversations', (SELECT coalesce(max(n), 0) FROM messages));
-- Up to this time you were told of what came back after you had put it off.
INSERT INTO progress VALUES ('returned', 0);

CREATE TABLE conversation_messages (
    source  TEXT NOT NULL,
    thread  TEXT NOT NULL,
    n       INTEGER NOT NULL,
    mailbox TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    role    TEXT NOT NULL,
    PRIMARY KEY (source, thread, n)
) WITHOUT ROWID;

CREATE TABLE conversations (
    source    TEXT NOT NULL,
    thread    TEXT NOT NULL,              -- the id of its only message where a source names no thread
    count     INTEGER NOT NULL,
    last_n    INTEGER NOT NULL,
    other_n   INTEGER NOT NULL,           -- the newest that is not yours; 0: you alone have written
    triage    TEXT NOT NULL DEFAULT '',   -- what you did last: done, snoozed or open
    through_n INTEGER NOT NULL DEFAULT 0, -- up to which message that was; what others say later is not covered by it
    until     INTEGER,
    is_marked INTEGER NOT NULL DEFAULT 0, -- you want it to count as unread
    state     TEXT NOT NULL GENERATED ALWAYS AS (
        CASE WHEN triage IN ('done', 'snoozed') AND other_n <= through_n THEN triage
            WHEN other_n = 0 AND triage <> 'open' THEN 'sent' ELSE 'open' END) VIRTUAL,
    PRIMARY KEY (source, thread)
) WITHOUT ROWID;
CREATE INDEX conversations_by_state ON conversations (state, last_n);

CREATE TRIGGER conversation_grows AFTER INSERT ON conversation_messages WHEN NEW.role IN ('you', 'other')
BEGIN
    INSERT INTO conversations (source, thread, count, last_n, other_n)
    VALUES (NEW.source, NEW.thread, 1, NEW.n, iif(NEW.role = 'other', NEW.n, 0))
    ON CONFLICT (source, thread) DO UPDATE
    SET count = count + 1, last_n = max(last_n, excluded.last_n), other_n = max(other_n, excluded.other_n);
END;

CREATE TRIGGER conversation_shrinks AFTER DELETE ON conversation_messages WHEN OLD.role IN ('you', 'other')
BEGIN
    DELETE FROM conversations WHERE source = OLD.source AND thread = OLD.thread AND count <= 1;
    UPDATE conversations SET count = count - 1,
        last_n = iif(last_n <> OLD.n, last_n, (
            SELECT coalesce(max(n), 0) FROM conversation_messages
            WHERE source = OLD.source AND thread = OLD.thread AND role IN ('you', 'other'))),
        other_n = iif(other_n <> OLD.n, other_n, (
            SELECT coalesce(max(n), 0) FROM conversation_messages
            WHERE source = OLD.source AND thread = OLD.thread AND role = 'other'))
    WHERE source = OLD.source AND thread = OLD.thread;
END;

CREATE TRIGGER message_leaves_conversation BEFORE DELETE ON messages
BEGIN
    DELETE FROM conversation_messages
    WHERE (source, thread, n) IN (SELECT source, thread, n FROM thread_messages WHERE n = OLD.n);
END;

INSERT INTO conversation_messages (source, thread, n, mailbox, seq, role)
SELECT source, thread, n, mailbox, seq, role FROM thread_messages ORDER BY n;

-- What you had seen before there was such a list counts as done.
UPDATE conversations SET triage = 'done', through_n = last_n WHERE NOT EXISTS (
    SELECT 1 FROM conversation_messages m
    WHERE m.source = conversations.source AND m.thread = conversations.thread AND m.role IN ('you', 'other')
        AND m.seq > coalesce((SELECT c.seq FROM cursors c WHERE c.consumer = 'watch' AND c.mailbox = m.mailbox), 0));
-- The journal says so: a database that is built from it does the same there.
INSERT INTO events (n, at, kind, message, data)
SELECT (SELECT coalesce(max(n), 0) + 1 FROM events), CAST(strftime('%s', 'now') AS INTEGER) * 1000000, 'sorted', NULL, '{}'
WHERE EXISTS (SELECT 1 FROM conversations);
