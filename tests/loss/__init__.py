"""Nothing is lost: the daemon is killed, starved and damaged, and every accepted message is still delivered."""
