"""Where messages come from, and the way back: a source yields drafts and takes replies.

`source.py` says what a source is and what a kind of source declares; `registry.py` finds the kinds, one folder each. A
source knows neither ingest nor the store; the daemon stands between.
"""
