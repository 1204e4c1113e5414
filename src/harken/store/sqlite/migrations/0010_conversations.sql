-- Messages of one thread, as you sort them: done, put off, or still in your list. Counted as messages come and go.
CREATE INDEX messages_by_thread ON messages (source, iif(thread = '', id, thread));

CREATE TABLE conversations (
    source    TEXT NOT NULL,
    thread    TEXT NOT NULL,              -- the id of its only message where a source names no thread
    count     INTEGER NOT NULL,
    last_n    INTEGER NOT NULL,
    state     TEXT NOT NULL,              -- open, sent (you alone have written), done, snoozed
    until     INTEGER,                    -- of a snoozed one
    is_marked INTEGER NOT NULL DEFAULT 0, -- you want it to count as unread
    PRIMARY KEY (source, thread)
) WITHOUT ROWID;
CREATE INDEX conversations_by_state ON conversations (state, last_n);

-- What you had seen before there was such a list counts as done.
INSERT INTO conversations (source, thread, count, last_n, state)
SELECT m.source, iif(m.thread = '', m.id, m.thread), count(*), max(m.n),
    iif(max(m.seq > coalesce((SELECT c.seq FROM cursors c WHERE c.consumer = 'watch' AND c.mailbox = m.mailbox), 0)),
        iif(min(m.source = 'local' AND m.sender_id = 'owner' AND m.trust = 'owner'), 'sent', 'open'), 'done')
FROM messages m WHERE m.kind = 'message' AND m.mailbox NOT LIKE 'trial:%' AND m.mailbox NOT LIKE 'task:%'
GROUP BY 1, 2;

CREATE TRIGGER conversation_grows AFTER INSERT ON messages
WHEN NEW.kind = 'message' AND NEW.mailbox NOT LIKE 'trial:%' AND NEW.mailbox NOT LIKE 'task:%'
BEGIN
    INSERT INTO conversations (source, thread, count, last_n, state)
    VALUES (NEW.source, iif(NEW.thread = '', NEW.id, NEW.thread), 1, NEW.n,
        iif(NEW.source = 'local' AND NEW.sender_id = 'owner' AND NEW.trust = 'owner', 'sent', 'open'))
    -- What you write yourself brings nothing back that you were done with.
    ON CONFLICT (source, thread) DO UPDATE SET count = count + 1, last_n = excluded.last_n,
        state = iif(excluded.state = 'sent', state, 'open'), until = iif(excluded.state = 'sent', until, NULL);
END;

CREATE TRIGGER conversation_shrinks AFTER DELETE ON messages
WHEN OLD.kind = 'message' AND OLD.mailbox NOT LIKE 'trial:%' AND OLD.mailbox NOT LIKE 'task:%'
BEGIN
    DELETE FROM conversations
    WHERE source = OLD.source AND thread = iif(OLD.thread = '', OLD.id, OLD.thread) AND count <= 1;
    UPDATE conversations SET count = count - 1, last_n = iif(last_n <> OLD.n, last_n, coalesce((
        SELECT max(m.n) FROM messages m
        WHERE m.source = OLD.source AND iif(m.thread = '', m.id, m.thread) = iif(OLD.thread = '', OLD.id, OLD.thread)
            AND m.kind = 'message' AND m.mailbox NOT LIKE 'trial:%' AND m.mailbox NOT LIKE 'task:%'), last_n))
    WHERE source = OLD.source AND thread = iif(OLD.thread = '', OLD.id, OLD.thread);
END;
