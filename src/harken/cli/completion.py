"""The verb `completion`: the script that teaches a shell to complete `harken`."""

from __future__ import annotations

import click

from harken.cli.verbs import Invocation, verb


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
