"""The use cases. Every surface is an adapter over `Inbox`: one name, one method, the same errors everywhere."""
