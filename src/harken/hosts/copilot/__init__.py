"""GitHub Copilot CLI: how its hooks speak (`hooks`), and how it is connected (`connect`)."""
