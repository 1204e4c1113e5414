"""Ways a message reaches its reader: MCP tools, the command line's socket, HTTP. Adapters over `Inbox`, no policy."""
