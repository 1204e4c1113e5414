-- Which daemon committed an event, and has its line in the journal. Empty: the only one.
ALTER TABLE events ADD COLUMN daemon TEXT NOT NULL DEFAULT '';
