"""A bot of the Bot Framework as a source: people write to it in Teams, and agents answer in the same conversation.

Microsoft's Bot Connector posts each activity to the door (`door.py`), which believes it only with a good token
and makes drafts of it (`activity.py`). Answers go out through `sender.py`, to the conversation
that the stored message names and nowhere else. Above is the daemon; below are the clock, the model and the errors.
"""
