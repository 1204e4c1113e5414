"""Ways a message reaches somebody: MCP tools, the command line's socket, HTTP. Adapters over `Inbox`, no policy."""
