-- Which daemon has the session that an offer was made to, and which hands a reply over. Empty: the only one.
ALTER TABLE deliveries ADD COLUMN daemon TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN daemon TEXT NOT NULL DEFAULT '';
