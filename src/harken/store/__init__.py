"""The only meeting point: what was accepted, for which readers, and how far it got.

`contract/` is the contract, `sqlite/` the embedded backend, `journal.py` the daily JSONL written from the store's
events. Nothing above knows which backend it talks to.
"""
