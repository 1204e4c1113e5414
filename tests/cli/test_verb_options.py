"""The table by which the command line knows the arguments of verbs: written from the verbs, and light."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from harken.cli.verb_options import VERB_HELP, VERB_OPTIONS
from harken.cli.verbs import verb_command, verb_option
from harken.verbs.table import VERBS
from scripts import verb_table

SECONDS = 30.0


def test_table_is_what_the_verbs_say() -> None:
    """One declaration: whoever changes a verb's words changes those of its command."""
    assert verb_table.TABLE.read_text(encoding="utf-8") == verb_table.table()
    # In a process of its own: a command that was run by itself keeps, for good, the option of help that it had then.
    argv = [sys.executable, verb_table.__file__, "--check"]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(VERB_OPTIONS) <= {verb.name for verb in VERBS}


def test_option_has_the_flag_the_default_and_the_help_of_the_argument() -> None:
    """A command adds how it is completed and shown, and nothing of what it means."""

    @verb_option("send", "sender", metavar="NAME")
    @verb_option("pull", "peek")
    @click.command()
    def command() -> None:
        """Do nothing."""

    peek, sender = command.params
    assert isinstance(sender, click.Option)
    assert (sender.opts, sender.default, sender.help) == (["--from"], None, "The sender (default: you).")
    assert isinstance(peek, click.Option)
    assert (peek.opts, peek.is_flag, peek.help) == (["--peek"], True, "Look without taking.")
    with pytest.raises(KeyError):
        verb_option("send", "nonsense")


def test_command_has_the_help_of_its_verb_and_then_its_own() -> None:
    """What a verb does is said once; how it is typed is said where it is typed."""

    @verb_command("pull")
    def command(_asked: object) -> None:
        """They count as seen once printed."""

    @verb_command("channel_ack", "ack")
    def other(_asked: object) -> None:
        pass

    assert (command.name, command.help) == ("pull", f"{VERB_HELP['pull']}\n\nThey count as seen once printed.")
    assert (other.name, other.help) == ("ack", VERB_HELP["channel_ack"])


def test_command_line_loads_no_verb_and_no_codec_to_show_its_help() -> None:
    """Start-up is felt: the daemon parses, the command line asks."""
    script = (
        "import sys, harken.cli.message_commands;"
        "print([name for name in ('msgspec', 'harken.verbs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.strip() == "[]"
