-- Up to where you cleared a channel: what came before is hidden from channels, and stays in its mailbox.
ALTER TABLE channels ADD COLUMN cleared_n INTEGER NOT NULL DEFAULT 0;      -- the newest message that is hidden
ALTER TABLE channels ADD COLUMN cleared_count INTEGER NOT NULL DEFAULT 0;  -- how many are
CREATE INDEX channels_cleared ON channels (cleared_n) WHERE cleared_n > 0;

DROP TRIGGER channel_shrinks;
CREATE TRIGGER channel_shrinks AFTER DELETE ON messages WHEN OLD.mailbox NOT LIKE 'trial:%'
BEGIN
    UPDATE channels SET count = count - 1, cleared_count = cleared_count - (OLD.n <= cleared_n)
    WHERE source = OLD.source AND channel = OLD.channel;
    DELETE FROM channels WHERE source = OLD.source AND channel = OLD.channel AND count <= 0;
END;
