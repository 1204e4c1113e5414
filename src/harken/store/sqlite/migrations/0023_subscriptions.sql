-- Events that are posted to addresses: who asked for them, until when, and how far everything is in the outbox.
CREATE TABLE subscriptions (
    n            INTEGER PRIMARY KEY,  -- order in which they were made
    id           TEXT NOT NULL UNIQUE,
    token        TEXT NOT NULL,              -- the id of the token that asked
    holder       TEXT NOT NULL,              -- its name
    url          TEXT NOT NULL,
    event        TEXT NOT NULL,
    arguments    TEXT NOT NULL,              -- the filter, as JSON
    secret       TEXT NOT NULL,              -- signs what is posted
    former       TEXT NOT NULL DEFAULT '',   -- the secret before it, which signs too
    former_until INTEGER,                    -- until then
    made_at      INTEGER NOT NULL,
    renewed_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    oldest       INTEGER,                    -- nothing from before is told
    number       INTEGER NOT NULL,           -- of the last event that was looked at
    has_gap      INTEGER NOT NULL DEFAULT 0,
    is_suspended INTEGER NOT NULL DEFAULT 0,
    given_up     INTEGER NOT NULL DEFAULT 0, -- events that could not be posted, in a row
    failing_from INTEGER,                    -- every try has failed since then
    error        TEXT NOT NULL DEFAULT '',   -- of the last try
    told         INTEGER NOT NULL DEFAULT 0,
    told_at      INTEGER
);

ALTER TABLE outbox ADD COLUMN subscription TEXT NOT NULL DEFAULT '';  -- that an event is for; empty: it is a reply
ALTER TABLE outbox ADD COLUMN event INTEGER NOT NULL DEFAULT 0;       -- its number
CREATE INDEX outbox_by_subscription ON outbox (subscription, event) WHERE subscription <> '';
