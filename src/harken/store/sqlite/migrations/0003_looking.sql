-- What a page shows must be found without reading what it does not show.

-- A message's place in its channel follows from the row number that every index ends with.
CREATE INDEX messages_by_channel ON messages (source, channel);
CREATE INDEX messages_by_time ON messages (received_at, channel, mailbox);
CREATE INDEX messages_referring ON messages (refers_to) WHERE refers_to IS NOT NULL;

-- Counted as messages come and go: counting them when somebody looks would read them all. Trials are nobody's mail.
CREATE TABLE channels (
    source  TEXT NOT NULL,
    channel TEXT NOT NULL,
    count   INTEGER NOT NULL,
    last_n  INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (source, channel)
) WITHOUT ROWID;
INSERT INTO channels
SELECT source, channel, count(*), max(n), max(received_at) FROM messages
WHERE mailbox NOT LIKE 'trial:%' GROUP BY source, channel;

CREATE TRIGGER channel_grows AFTER INSERT ON messages WHEN NEW.mailbox NOT LIKE 'trial:%'
BEGIN
    INSERT INTO channels (source, channel, count, last_n, last_at)
    VALUES (NEW.source, NEW.channel, 1, NEW.n, NEW.received_at)
    ON CONFLICT (source, channel) DO UPDATE
    SET count = count + 1, last_n = excluded.last_n, last_at = excluded.last_at;
END;

CREATE TRIGGER channel_shrinks AFTER DELETE ON messages WHEN OLD.mailbox NOT LIKE 'trial:%'
BEGIN
    UPDATE channels SET count = count - 1 WHERE source = OLD.source AND channel = OLD.channel;
    DELETE FROM channels WHERE source = OLD.source AND channel = OLD.channel AND count <= 0;
END;
