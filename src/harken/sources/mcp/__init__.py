"""Other MCP servers as sources: what they announce without being asked becomes drafts.

`source.py` is the door: `McpSource` is made from `McpSettings` and follows one server for ever over one of three links
(`http.py`, `stdio.py`). `protocol.py` is pure. It calls no tools and reads no resources: it listens. Above is the
daemon, below are only the model and the errors.
"""
