"""OpenAI Codex CLI: how its hooks speak, how it is connected and how it is woken (both with `appserver`)."""
