"""The verbs: one declaration of each, for the socket, the HTTP API, the tools of agents and the command line."""
