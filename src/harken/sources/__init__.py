"""Where messages come from, and the way back: a source yields drafts and takes replies.

A source knows neither ingest nor the store; the daemon stands between. What it must offer to take replies is
`ReplySender` in `dispatch/outbox.py`.
"""
