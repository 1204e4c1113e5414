-- Which machine has a lease, or the folder of a task or a run, and which daemon started a run. Empty: the only one.
ALTER TABLE leases ADD COLUMN machine TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN machine TEXT NOT NULL DEFAULT '';
DROP INDEX tasks_by_dir;
CREATE UNIQUE INDEX tasks_by_dir ON tasks (machine, dir) WHERE done_at IS NULL;
ALTER TABLE runs ADD COLUMN machine TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN daemon TEXT NOT NULL DEFAULT '';
DROP INDEX runs_by_folder;
CREATE UNIQUE INDEX runs_by_folder ON runs (machine, workdir) WHERE state = 'running' AND workdir <> '';
