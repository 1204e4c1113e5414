-- When a reply was handed to its source, while it is not known whether it left: after a crash it may have been sent.
ALTER TABLE outbox ADD COLUMN tried_at INTEGER;
