"""The chats of a person in Microsoft Teams: read politely, and answered.

`source.py` asks again and again, `polling.py` decides which chats are read and what was new in them, from a
checkpoint; `messages.py` makes drafts of messages and HTML of answers, and is pure; `sender.py` sends replies, one
at a time in each chat, and looks for them before it repeats them. Below is `microsoft`.
"""
