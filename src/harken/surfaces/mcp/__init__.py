"""MCP for agents: one server per connection on the official SDK, spoken over the daemon's socket.

`tools.py` says what agents can call, `connection.py` joins a socket, the SDK and the inbox.
"""
