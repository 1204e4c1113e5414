-- What hosts ask before a tool is used, and what became of it.
CREATE TABLE approvals (
    n           INTEGER PRIMARY KEY,  -- order in which they were asked
    id          TEXT NOT NULL UNIQUE,
    host        TEXT NOT NULL,
    session     TEXT NOT NULL,
    tool        TEXT NOT NULL,
    arguments   TEXT NOT NULL,             -- as JSON
    digest      TEXT NOT NULL,             -- of host, session, tool and arguments: an answer names it
    folder      TEXT NOT NULL,
    why         TEXT NOT NULL,
    choices     TEXT NOT NULL,             -- as JSON
    always      TEXT NOT NULL,             -- the rule that its host would write
    turn        TEXT NOT NULL,
    native      TEXT NOT NULL,             -- its host's own id of it; empty where there is none
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    state       TEXT NOT NULL,
    shown       TEXT NOT NULL DEFAULT '[]',  -- the surfaces that have shown it, as JSON
    choice      TEXT NOT NULL DEFAULT '',
    reason      TEXT NOT NULL DEFAULT '',
    answered_by TEXT NOT NULL DEFAULT '',
    through     TEXT NOT NULL DEFAULT '',
    answered_at INTEGER,
    ended_at    INTEGER,
    because     TEXT NOT NULL DEFAULT '',
    daemon      TEXT NOT NULL DEFAULT ''   -- which keeps its host waiting
);
CREATE INDEX approvals_by_state ON approvals (state, n);
