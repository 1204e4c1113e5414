"""Tasks on disk: git, worktrees, and the host that is connected in a task's folder. It prints nothing."""
