"""A host for the tests of trials that is none: a short program that does what a host does on the wire.

It asks the model, runs the shell command that it is given, passes on what its "hooks" get from Harken, and sends the
whole conversation each time. The Harken beside it is a folder of files.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harken.hosts.host import Host
from harken.hosts.registry import hook_host
from harken.hosts.trial_recipe import ModelOverrides, TrialRecipe
from harken.trial.model import MockModel
from harken.trial.outcome import TrialLedgerLine, TrialSession
from harken.trial.turn import Trial

MAILBOX = "trial:one"

# argv: the model's address, the folder of the mail, which hooks run, the prompt.
HOST = """
import json, pathlib, subprocess, sys, urllib.request
url, mail, hooks, prompt = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4]
told = set()

def waiting(moment):
    new = [path for path in sorted(mail.iterdir()) if path not in told] if moment in hooks else []
    told.update(new)
    return [{"type": "text", "text": path.read_text()} for path in new]

names = ("inbox_pull", "inbound_queue_stats", *(() if "no shell" in hooks else ("Bash",)))
tools = [{"name": name} for name in names]
talk = [{"role": "user", "content": [{"type": "text", "text": prompt}, *waiting("prompt")]}]
while True:
    body = json.dumps({"model": "m", "max_tokens": 99, "tools": tools, "messages": talk}).encode()
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/messages", body)) as answer:
        blocks = json.load(answer)["content"]
    talk.append({"role": "assistant", "content": blocks})
    results = []
    for block in blocks:
        if block["type"] == "tool_use":
            is_shell = block["name"] == "Bash"
            if is_shell and "refusal" not in hooks:
                subprocess.run(block["input"]["command"], shell=True)
            said = "refused by policy" if is_shell else '{"depth": 0, "oldest_ts": null}'
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": said})
    more = waiting("tool" if results else "stop")
    if not results and not more:
        break
    talk.append({"role": "user", "content": [*results, *more]})
"""


@dataclass(frozen=True, slots=True)
class Letterbox:
    """A Harken whose messages are files, which the host above reads."""

    folder: Path
    guests: Sequence[TrialSession] = ()
    settled: list[str] = field(default_factory=list[str])

    def send(self, text: str, mailbox: str, *, is_quiet: bool = False) -> str:
        """Put a message into the folder, whole."""
        assert (mailbox, is_quiet) == (MAILBOX, False)
        name = f"m-{len(list(self.folder.iterdir()))}"
        (self.folder.parent / name).write_text(text)
        (self.folder.parent / name).rename(self.folder / name)
        return name

    def line(self, message: str, consumer: str) -> TrialLedgerLine:
        """Nobody has proof here."""
        del message, consumer
        return TrialLedgerLine(state="seen", surface="a hook", evidence="read")

    def sessions(self) -> Sequence[TrialSession]:
        """Whoever the test says is here."""
        return self.guests

    def probe(self, session: str, method: str, params: Mapping[str, object]) -> bool:
        """There is no connection."""
        del session, method, params
        return False

    def settle(self, messages: Sequence[str]) -> None:
        """Remember."""
        self.settled.extend(messages)


def trial_in(folder: Path, model: MockModel, hooks: str, *argv: str) -> Trial:
    """A trial of the program above, with these hooks."""
    mail, here = folder / "mail", folder / "here"
    mail.mkdir()
    here.mkdir()
    program = argv or (sys.executable, "-c", HOST)
    recipe = TrialRecipe(
        overrides=lambda _url: ModelOverrides(),
        prepare=lambda *_: None,
        headless_argv=lambda prompt: (*program[1:], model.url, str(mail), hooks, prompt),
    )
    return Trial(
        host=Host(name="claude-code", title="The host"),
        recipe=recipe,
        hooks=hook_host("claude-code"),
        program=Path(program[0]),
        environ={"PATH": "/usr/bin:/bin"},
        folder=here,
        mailbox=MAILBOX,
        model=model,
        post=Letterbox(mail),
        tell=lambda _text: None,
    )
