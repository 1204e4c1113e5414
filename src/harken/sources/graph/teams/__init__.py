"""The chats of a person in Microsoft Teams: read politely, and answered.

`source.py` asks again and again, `polling.py` decides which chats are read and what was new in them, from a place it
remembers (`place.py`), with patience for those that fail (`patience.py`) and over several rounds where much happened
(`backlog.py`); `chats.py` does the asking. `reading.py` makes drafts of messages and is pure. `sender.py` sends
replies, one at a time in each chat (`turns.py`), and looks for them before it repeats them (`trace.py`); what they say
is made in `writing.py`. Below is the Graph client.
"""
