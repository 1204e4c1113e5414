"""opencode: how its plugin of ours speaks (`hooks`, `files/harken.js`), and how it is connected (`connect`)."""
