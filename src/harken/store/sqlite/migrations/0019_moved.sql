-- Where the store is, if this is a copy that is not in use: it was moved from here, or is being moved here.
ALTER TABLE identity ADD COLUMN moved_to TEXT NOT NULL DEFAULT '';
