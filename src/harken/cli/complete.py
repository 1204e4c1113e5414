"""The verb `completion`, and how click is told what the words of a command may be.

What the words may be is in `completion.py`, which finds most of it without click.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from harken.cli import completion as words
from harken.cli.invocation import Invocation
from harken.cli.verbs import verb

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter | None, str], "list[CompletionItem]"]


def completer(name: str) -> Completer:
    """Return what offers the values that a function of `completion.py` finds."""
    find: Callable[[words.CompletionQuery, str], list[words.Completion]] = getattr(words, name)

    def complete(context: click.Context, _parameter: click.Parameter | None, begin: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        home = context.params.get("home") or context.find_root().params.get("home")
        found = find(words.CompletionQuery(home, context.params), begin)
        return [CompletionItem(value, help=about or None) for value, about in found]

    complete.__name__ = name  # by which `scripts/verb_table.py` knows it
    return complete


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
