"""MCP for agents: one server per connection on the official SDK, spoken over the daemon's socket.

`server.py` has the handlers, `connection.py` joins a socket, the SDK and the inbox, `services.py` needs no SDK.
"""
