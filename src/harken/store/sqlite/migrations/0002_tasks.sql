CREATE TABLE tasks (
    n            INTEGER PRIMARY KEY,  -- order in which they were made
    id           TEXT NOT NULL UNIQUE, -- used once, for ever: a removed task keeps its row
    title        TEXT NOT NULL,
    dir          TEXT NOT NULL,
    repo         TEXT NOT NULL,
    branch       TEXT NOT NULL,
    agent        TEXT NOT NULL,
    has_worktree INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    started_at   INTEGER,
    done_at      INTEGER,
    removed_at   INTEGER
);
-- One folder, one open task: whose consumer a session is follows from where it runs.
CREATE UNIQUE INDEX tasks_by_dir ON tasks (dir) WHERE done_at IS NULL;

-- A link is one row, the smaller id first.
CREATE TABLE task_links (
    task  TEXT NOT NULL,
    other TEXT NOT NULL,
    PRIMARY KEY (task, other)
) WITHOUT ROWID;
