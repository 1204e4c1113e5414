"""Claude Code: how it is connected, what its hooks say and hear, and what its command line tells about the channel."""
