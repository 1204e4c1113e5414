-- One row: which store this is. The epoch counts from one restore or recovery to the next.
CREATE TABLE identity (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    id    TEXT NOT NULL,
    epoch INTEGER NOT NULL
);
INSERT INTO identity (one, id, epoch) SELECT 1, lower(hex(randomblob(6))), 1;
