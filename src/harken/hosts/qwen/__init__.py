"""Qwen Code: how its hooks speak, how it is connected, and how an idle session is woken."""
