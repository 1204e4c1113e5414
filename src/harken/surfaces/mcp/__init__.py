"""MCP for agents: one server per connection over the daemon's socket, and the official SDK for all else.

`server.py` has the methods, `connection.py` serves them to clients of the handshake era, `sdk.py` to those of the
modern era and at `/mcp`; it alone needs the SDK. `services.py` has what all of them share.
"""
