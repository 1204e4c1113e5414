"""The chats of a person in Microsoft Teams: read politely, and answered.

`source.py` polls the list of chats and reads those that changed (`chats.py`), from a place it remembers (`place.py`);
`reading.py` makes drafts of messages and is pure; `sender.py` sends replies. Below is the Graph client.
"""
