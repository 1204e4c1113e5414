"""What the shell offers when Tab is pressed: asks a daemon that runs, briefly, and is silent about any trouble.

The verb `completion` prints the script that teaches a shell to ask.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from harken.cli.output import cut
from harken.cli.verbs import Invocation, verb
from harken.config.home import Home, find_home
from harken.control.client import DaemonConnection, Result, dial
from harken.display import one_line
from harken.errors import HarkenError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECONDS = 0.5
NEWEST = 30
MOST_CHANNELS = 100
HELP_WIDTH = 50
_PLAIN = re.compile(r"[\w.:@+/][\w.:@+/-]*")


def messages(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the newest messages: their ids, or their sequence numbers once a digit is typed."""
    from click.shell_completion import CompletionItem

    found = _ask(context, "list", limit=NEWEST).get("messages", [])
    offered = [(_name_of(record, begin), cut(_about(record), HELP_WIDTH)) for record in reversed(found)]
    return [CompletionItem(name, help=about) for name, about in offered if name.startswith(begin)]


def complete_hosts(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the names of hosts."""
    from harken.hosts.registry import host_words

    return [name for name in host_words() if name.startswith(begin)]


def channels(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the channels of recent messages."""
    found = _ask(context, "list", limit=10 * NEWEST).get("messages", [])
    return _items({record["channel"] for record in found}, begin)


def channel_names(context: click.Context, _parameter: click.Parameter | None, begin: str) -> list[str]:
    """Offer the channels that messages came through."""
    return _items({found["channel"] for found in _channels(context)}, begin)


def sources_of_channels(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the sources of channels, of the one that is named already if there is one."""
    name = context.params.get("name")
    return _items({found["source"] for found in _channels(context) if name in (None, "", found["channel"])}, begin)


def configured_sources(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the sources of config.toml; no daemon is asked, because one that cannot start has them too."""
    import tomllib

    try:
        with _home(context).config_file.open("rb") as stream:
            found = tomllib.load(stream).get("sources", {})
    except (HarkenError, OSError, ValueError):
        return []
    return _items(set(found) if isinstance(found, dict) else set(), begin)


def mailboxes(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the mailboxes."""
    return _items(set(_ask(context, "mailboxes").get("mailboxes", [])), begin)


def consumers(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the consumers."""
    return _items({place["consumer"] for place in _ask(context, "status").get("consumers", [])}, begin)


def tasks(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the tasks that are not done."""
    return _described({task["id"]: task["title"] for task in _ask(context, "task_list").get("tasks", [])}, begin)


def rule_names(context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the rules in force."""
    return _items({rule["name"] for rule in _ask(context, "rules").get("rules", [])}, begin)


def tool_words(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the words for tools that mean the same on every host."""
    from harken.runs.tools import PORTABLE

    return _items(set(PORTABLE), begin)


def waiting_actions(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the actions that wait for a yes or no."""
    found = _ask(context, "actions", state="waiting", limit=NEWEST).get("actions", [])
    return _described({each["id"]: f"{each['rule']}, {each['agent'] or 'any agent'}" for each in found}, begin)


def open_questions(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the messages that wait for an answer."""
    found = _ask(context, "questions", limit=NEWEST).get("questions", [])
    return _described({each["message"]["id"]: _about(each["message"]) for each in found}, begin)


def runs(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the newest runs."""
    return _runs(context, begin, running=None)


def open_runs(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the runs that are not over."""
    return _runs(context, begin, running=True)


def _runs(context: click.Context, begin: str, *, running: bool | None) -> list[CompletionItem]:
    found = _ask(context, "runs", limit=NEWEST, running=running).get("runs", [])
    return _described({each["id"]: f"{each['state']}, {each['rule'] or 'by hand'}" for each in found}, begin)


def browsers(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Offer the browsers that are signed in to the page."""
    found = _ask(context, "browsers").get("browsers", [])
    return _described({each["id"]: each["browser"] for each in found}, begin)


def _described(found: dict[str, str], begin: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=cut(one_line(found[name]), HELP_WIDTH)) for name in _items(set(found), begin)]


def _items(names: set[str], begin: str) -> list[str]:
    # Names come from outside. What is not a plain word could act on the terminal, or run when Enter is pressed.
    return [name for name in sorted(names) if name.startswith(begin) and _PLAIN.fullmatch(name)]


def _name_of(record: Result, begin: str) -> str:
    # A bare number means a place in the inbox.
    is_number = begin.isdigit() and record["mailbox"] == "inbox"
    return str(record["seq"]) if is_number else str(record["id"])


def _channels(context: click.Context) -> list[Result]:
    found: list[Result] = _ask(context, "channels", limit=MOST_CHANNELS).get("channels", [])
    return found


def _about(record: Result) -> str:
    return one_line(f"{record['from']}: {record['content_text_sanitized']}")


def _home(context: click.Context) -> Home:
    flag = context.params.get("home") or context.find_root().params.get("home")
    return find_home(flag, os.environ)


def _ask(context: click.Context, method: str, **params: object) -> Result:
    try:
        client = DaemonConnection(*dial(_home(context), SECONDS))
        try:
            return client.call(method, params, SECONDS)
        finally:
            client.close()
    except (HarkenError, OSError, ValueError):
        return {}


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(asked: Invocation, *, shell: str) -> None:
    """Print the completion script of a shell.

    bash: eval "$(harken completion bash)", in ~/.bashrc; zsh the same in ~/.zshrc; fish: harken completion fish |
    source, in ~/.config/fish/config.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    source = kind(click.get_current_context().find_root().command, {}, "harken", "_HARKEN_COMPLETE").source()
    if asked.as_json:
        asked.print_json({"shell": shell, "script": source})
    else:
        asked.screen.line(source)
