-- What a token is good for, as JSON: what it may do, in which mailboxes, as whom. Empty: it is a machine's.
ALTER TABLE tokens ADD COLUMN scope TEXT NOT NULL DEFAULT '';
