"""OpenAI Codex CLI: how its hooks speak, how it is connected (with `appserver` and `trust`), and how it is woken."""
