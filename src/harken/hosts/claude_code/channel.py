"""The claude channel: Claude Code's own push, and whether a session listens to it, told by its command line.

Pure. Without one of these options Claude Code drops what is pushed, silently, so nothing is pushed then. That a session
listens is not yet proof: Claude Code may refuse the channel for reasons of its own, and other surfaces follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harken.hosts.claude_code.plugin import SERVER, is_plugin_id
from harken.hosts.wake import PushChannel

METHOD: Final = "notifications/claude/channel"
OPTIONS: Final = ("--channels", "--dangerously-load-development-channels")


def listens_to_channel(argv: Sequence[str]) -> bool:
    """Return whether a command line of Claude Code asks for our channel."""
    is_listing = False
    for word in argv[1:]:
        option, _, value = word.partition("=")
        if option in OPTIONS:
            if _is_ours(value):
                return True
            is_listing = not value  # with `=` the option takes one entry, else all that follow
        elif word.startswith("-"):
            if word == "--":
                return False
            is_listing = False
        elif is_listing and _is_ours(word):
            return True
    return False


def _is_ours(entry: str) -> bool:
    kind, _, name = entry.partition(":")
    return is_plugin_id(name) if kind == "plugin" else entry == f"server:{SERVER}"


def _params(text: str) -> Mapping[str, object]:
    # Meta values are strings, and none is called `source`: the host adds that one itself.
    return {"content": text, "meta": {"kind": "inbox"}}


CHANNEL: Final = PushChannel(
    surface="claude channel",
    capability="claude/channel",
    method=METHOD,
    most_chars=8_000,
    params=_params,
    listens=listens_to_channel,
)
