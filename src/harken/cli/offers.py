"""What a word may be when Tab is pressed: asks a daemon that runs, briefly, and is silent about any trouble.

Each function offers the values of an option or argument that begin with what is typed, with a few words about each.
It is imported without click, because whoever pressed Tab waits.
"""

from __future__ import annotations

import os

from harken.cli.output import cut
from harken.config.folder import CONFIG_FILE, find_folder
from harken.control.client import DaemonConnection, dial
from harken.display import one_line
from harken.errors import HarkenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from harken.control.client import Result

    Offer = tuple[str, str]
    """A word, and what is said about it."""

SECONDS = 0.5
NEWEST = 30
MAX_CHANNELS = 100
HELP_WIDTH = 50


class CompletionQuery:
    """What is on the line already: the home that it names, and the values of the command."""

    __slots__ = ("home", "values")

    def __init__(self, home: str | None, values: Mapping[str, object]) -> None:
        self.home = home
        self.values = values


def messages(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the newest messages: their ids, or their sequence numbers once a digit is typed."""
    found = _ask(query, "list", limit=NEWEST).get("messages", [])
    offered = [(_name_of(record, begin), cut(_about(record), HELP_WIDTH)) for record in reversed(found)]
    return [(name, about) for name, about in offered if name.startswith(begin)]


def complete_hosts(_query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the names of hosts."""
    from harken.hosts.registry import host_words

    return [(name, "") for name in host_words() if name.startswith(begin)]


def channels(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the channels of recent messages."""
    found = _ask(query, "list", limit=10 * NEWEST).get("messages", [])
    return _items({record["channel"] for record in found}, begin)


def channel_names(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the channels that messages came through."""
    return _items({found["channel"] for found in _channels(query)}, begin)


def sources_of_channels(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the sources of channels, of the one that is named already if there is one."""
    name = query.values.get("name")
    return _items({found["source"] for found in _channels(query) if name in (None, "", found["channel"])}, begin)


def configured_sources(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the sources of config.toml; no daemon is asked, because one that cannot start has them too."""
    import tomllib

    try:
        with open(f"{_folder(query)}/{CONFIG_FILE}", "rb") as stream:
            found = tomllib.load(stream).get("sources", {})
    except (HarkenError, OSError, ValueError):
        return []
    return _items(set(found) if isinstance(found, dict) else set(), begin)


def mailboxes(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the mailboxes."""
    return _items(set(_ask(query, "mailboxes").get("mailboxes", [])), begin)


def consumers(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the consumers."""
    return _items({place["consumer"] for place in _ask(query, "status").get("consumers", [])}, begin)


def tasks(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the tasks that are not done."""
    return _described({task["id"]: task["title"] for task in _ask(query, "task_list").get("tasks", [])}, begin)


def rule_names(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the rules in force."""
    return _items({rule["name"] for rule in _ask(query, "rules").get("rules", [])}, begin)


def tool_words(_query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the words for tools that mean the same on every host."""
    from harken.runs.tools import PORTABLE

    return _items(set(PORTABLE), begin)


def waiting_actions(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the actions that wait for a yes or no."""
    found = _ask(query, "actions", state="waiting", limit=NEWEST).get("actions", [])
    return _described({each["id"]: f"{each['rule']}, {each['agent'] or 'any agent'}" for each in found}, begin)


def open_questions(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the messages that wait for an answer."""
    found = _ask(query, "questions", limit=NEWEST).get("questions", [])
    return _described({each["message"]["id"]: _about(each["message"]) for each in found}, begin)


def conversations(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the newest message of each conversation that is neither done nor put off."""
    found = [each["newest"] for each in _ask(query, "conversations", limit=NEWEST).get("conversations", [])]
    return _described({record["id"]: _about(record) for record in found}, begin)


def runs(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the newest runs."""
    return _runs(query, begin, running=None)


def open_runs(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the runs that are not over."""
    return _runs(query, begin, running=True)


def _runs(query: CompletionQuery, begin: str, *, running: bool | None) -> list[Offer]:
    found = _ask(query, "runs", limit=NEWEST, running=running).get("runs", [])
    return _described({each["id"]: f"{each['state']}, {each['rule'] or 'by hand'}" for each in found}, begin)


def browsers(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the browsers that are signed in to the page."""
    found = _ask(query, "browsers").get("browsers", [])
    return _described({each["id"]: each["browser"] for each in found}, begin)


def tokens(query: CompletionQuery, begin: str) -> list[Offer]:
    """Offer the tokens that are in force."""
    found = [each for each in _ask(query, "token_list").get("tokens", []) if each["state"] == "in force"]
    return _described({each["name"]: each["kind"] for each in found}, begin)


def _described(found: dict[str, str], begin: str) -> list[Offer]:
    return [(name, cut(one_line(found[name]), HELP_WIDTH)) for name, _ in _items(set(found), begin)]


def _items(names: set[str], begin: str) -> list[Offer]:
    # Names come from outside. What is not a plain word could act on the terminal, or run when Enter is pressed.
    return [(name, "") for name in sorted(names) if name.startswith(begin) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    return bool(name) and name[0] != "-" and all(char.isalnum() or char in "_.:@+/-" for char in name)


def _name_of(record: Result, begin: str) -> str:
    # A bare number means a place in the inbox.
    is_number = begin.isdigit() and record["mailbox"] == "inbox"
    return str(record["seq"]) if is_number else str(record["id"])


def _channels(query: CompletionQuery) -> list[Result]:
    found: list[Result] = _ask(query, "channels", limit=MAX_CHANNELS).get("channels", [])
    return found


def _about(record: Result) -> str:
    return one_line(f"{record['from']}: {record['content_text_sanitized']}")


def _folder(query: CompletionQuery) -> str:
    return find_folder(query.home, os.environ)


def _ask(query: CompletionQuery, method: str, **params: object) -> Result:
    try:
        client = DaemonConnection(*dial(_folder(query), SECONDS))
        try:
            return client.call(method, params, SECONDS)
        finally:
            client.close()
    except (HarkenError, OSError, ValueError):
        return {}
