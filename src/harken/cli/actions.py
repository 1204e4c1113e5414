"""The verbs of `channel` that let things happen or not: pause, resume, confirm, run.

Each is one question to the daemon, which refuses an agent: only the person answers. What an action would do is shown
before it is asked for, and what follows from it afterwards; how both look on the screen is here too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep

import click

from harken.automation import ANY_AGENT, DEFAULT_TOOLS, MAX_WAITING, OWN_FOLDER
from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import BOLD, RED, Screen, note_to_person, width_of
from harken.cli.progress import SlowNotice
from harken.cli.rule_show import glance, show_message
from harken.cli.verbs import verb, verb_command, verb_option
from harken.control.client import ANSWER_SECONDS, DaemonClient, DaemonConnection, Result, dial
from harken.display import one_line
from harken.errors import Conflict, NotFound, Unavailable, UserError
from harken.hosts.registry import short, title_of

STAYED = 1  # the person said no
POLL_SECONDS = 0.5
BEGIN_SECONDS = 3600.0  # a folder may be taken by another run for long
YES, NO = "yes", "no"
MINUTE = 60
PROMPT_CHARS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a person wants to be run, as far as they said."""

    rule: str
    agent: str
    tools: tuple[str, ...]
    workdir: Path | None
    prompt: str

    def arguments(self) -> Result:
        """Return it as the verb takes it."""
        folder = str(self.workdir.resolve()) if self.workdir else ""
        return {
            "rule": self.rule,
            "agent": self.agent,
            "tools": list(self.tools),
            "workdir": folder,
            "prompt": self.prompt,
        }


@verb_command("rules_pause", "pause")
def pause(asked: Invocation) -> None:
    _switch(asked, "rules_pause", "paused: messages keep arriving, and no rule fires. harken channel resume", "paused")


@verb_command("rules_resume", "resume")
def resume(asked: Invocation) -> None:
    _switch(asked, "rules_resume", "resumed: rules fire for what comes from now on", "in force")


def _switch(asked: Invocation, method: str, sentence: str, state: str) -> None:
    with asked.daemon() as daemon:
        found = daemon.ask(method)
        was_tried = daemon.tries > 1
    if asked.gave_json(found):
        return
    asked.screen.line(sentence)
    if found["is_paused"] and (found["queued"] or found["running"]):
        note_to_person(f"{found['queued']} queued after that, {found['running']} running: harken run list --running")
    if not (found["is_changed"] or was_tried):
        note_to_person(f"The rules were {state} before.")


@verb("confirm")
@click.argument("action", metavar="[ACTION]", default="", shell_complete=completer("waiting_actions"))
@click.argument("answer", metavar="[yes|no]", default=YES, type=click.Choice([YES, NO]))
def confirm(asked: Invocation, *, action: str, answer: str) -> None:
    """Answer a rule's question with yes or no. Without ACTION, show the open questions.

    ACTION is an action id or its beginning. The first answer counts. A question expires after 30 minutes.
    """
    with asked.daemon() as daemon:
        if not action:
            found = daemon.ask("actions", state="waiting", limit=MAX_WAITING)
        else:
            found = _answered(daemon, action, is_yes=answer == YES)
    if asked.as_json:
        asked.print_json(found)
    elif action:
        show_action(asked.screen, found)
    else:
        show_waiting(asked.screen, found["actions"])


def _answered(daemon: DaemonClient, ref: str, *, is_yes: bool) -> Result:
    try:
        return daemon.ask("confirm", action=ref, yes=is_yes)
    except Conflict:
        # Asked again because the connection broke: the answer that was faster may be this one.
        states = ("queued", "started") if is_yes else ("declined",)
        found = daemon.ask("actions")["actions"] if daemon.tries > 1 else []
        same: list[Result] = [each for each in found if each["id"].startswith(ref) and each["state"] in states]
        if len(same) != 1:
            raise
        return same[0]


@verb("run")
@click.argument("ref", metavar="SEQ", shell_complete=completer("messages"))
@verb_option("run_now", "rule", metavar="NAME", shell_complete=completer("rule_names"))
@verb_option("run_now", "agent", metavar="HOST", shell_complete=completer("complete_hosts"))
@click.option(
    "--tool",
    "tools",
    metavar="TOOL",
    multiple=True,
    shell_complete=completer("tool_words"),
    help="A tool it may use; can be repeated.",
)
@verb_option(
    "run_now",
    "workdir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
)
@verb_option("run_now", "prompt", metavar="TEXT")
@click.option("--follow", "-f", "is_followed", is_flag=True, help="Show its output until it ends.")
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="Do not ask for confirmation.")
def run(asked: Invocation, *, ref: str, is_followed: bool, is_agreed: bool, **wish: object) -> None:
    """Run an agent on a message. Shows what would run, then asks.

    SEQ is the number of a message in the inbox, or a message id. Without tools, the agent can only read files in its
    folder.
    """
    import msgspec  # not for the help of all commands

    wished = msgspec.convert(wish, RunOptions)
    with asked.daemon() as daemon:
        record = daemon.ask("read", ref=ref)["message"]
        if not is_agreed:
            _agree(asked, daemon, record, wished)
        action = _ask_once(asked, "run_now", message=record["id"], **wished.arguments())
        if not is_followed:
            if asked.as_json:
                asked.print_json(action)
            else:
                show_action(asked.screen, action)
            return
        from harken.cli.runs import follow_run

        follow_run(asked, daemon, _begun(daemon, action))


def _ask_once(asked: Invocation, method: str, **params: object) -> Result:
    """Ask what must not be asked twice: who asks again after a broken connection may start two runs."""
    try:
        client = DaemonConnection(*dial(asked.home))
        try:
            return client.call(method, params, ANSWER_SECONDS)
        finally:
            client.close()
    except OSError as exc:
        hint = "Look whether it happened: harken run list"
        raise Unavailable("The connection to the daemon broke before it answered.", hint) from exc


def _agree(asked: Invocation, daemon: DaemonClient, record: Result, wish: RunOptions) -> None:
    """Show what would run, and go on only with a yes."""
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("This needs your yes, and there is no terminal to ask in.", "Say --yes.")
    rule: Result | None = None
    if wish.rule:
        known = daemon.ask("rules")["rules"]
        rule = next((each for each in known if each["name"] == wish.rule), None)
        if rule is None:
            raise NotFound(f"There is no rule {wish.rule!r}.", "See: harken rules list")
    asked.screen.row(record)
    show_wish(asked.screen, wish, rule)
    if not click.confirm("Run?", default=True):
        asked.screen.line("Nothing was run.")
        click.get_current_context().exit(STAYED)


def _begun(daemon: DaemonClient, action: Result) -> str:
    """Wait until an action's run begins, and return the run."""
    waiting = SlowNotice(f"{action['id']}: {what_follows(action)}. Ctrl-C leaves it there.")
    end = monotonic() + BEGIN_SECONDS
    while monotonic() < end:
        if action["run"]:
            return str(action["run"])
        if action["state"] not in ("queued", "started"):
            raise Conflict(f"{action['id']} is {action['state']}: {action['reason']}", "See: harken rules list")
        waiting.check()
        sleep(POLL_SECONDS)
        found = daemon.ask("actions", message=action["message_id"])["actions"]
        action = next((each for each in found if each["id"] == action["id"]), action)
    hint = f"It stays queued. Take it back: harken channel confirm {action['id']} no"
    raise Unavailable("Its agent and folder were not free for an hour.", hint)


def show_wish(screen: Screen, wish: RunOptions, rule: Result | None) -> None:
    """Print what would run: what was said, else what the rule says."""
    said = wish.arguments()
    known = rule or {"agent": "", "runs_on": "", "tools": [], "workdir": "", "cannot_run": ""}
    tools = said["tools"] or known["tools"] or DEFAULT_TOOLS
    agent = said["agent"] or known["runs_on"] or known["agent"]
    screen.table(_order_rows(agent, said["workdir"] or known["workdir"], tools))
    if known["cannot_run"] and not (wish.agent or wish.tools):
        screen.flow(f"cannot run: {known['cannot_run']}", "  ", 2, RED)


def show_waiting(screen: Screen, actions: Sequence[Result]) -> None:
    """Print the questions that wait, each with the time that is left."""
    for each in actions:
        head = f"{one_line(each['id'])}  {one_line(each['rule'])}  {left(each['expires_at'])}"
        screen.line(screen.paint(screen.fit(head), BOLD))
        rows = _order_rows(each["runs_on"], each["folder"], each["tools"])
        screen.table([*rows, ("message", glance(each["message"]))])
        screen.line("  it is told:")
        for line in _shortened(each["prompt"]).splitlines():
            screen.line(screen.fit(f"    {one_line(line)}"))
    if actions:
        note_to_person("Answer: harken channel confirm ACTION, or harken channel confirm ACTION no")
    else:
        note_to_person("Nothing waits for your answer.")


def show_action(screen: Screen, action: Result) -> None:
    """Print an action: what it is about, what it does, and what follows."""
    show_message(screen, action["message"])
    if action["state"] in ("queued", "started", "waiting"):
        screen.table(_order_rows(action["runs_on"], action["folder"], action["tools"]))
    head = f"{one_line(action['id'])}  {screen.paint(one_line(action['state']), BOLD)}  "
    taken = width_of(f"{one_line(action['id'])}  {one_line(action['state'])}  ")
    screen.line(head + screen.fit(what_follows(action), taken))


def what_follows(action: Result) -> str:
    """Return what becomes of an action, in a few words."""
    if action["run"]:
        return f"runs as {action['run']}: harken run follow {action['run']}"
    if action["state"] == "queued" and action["reason"]:
        return f"cannot run: {one_line(action['reason'])}"
    if action["state"] == "queued":
        return f"starts when {title_of(action['agent']) if action['agent'] else 'an agent'} is free"
    if action["state"] == "waiting":
        return f"waits for your answer, {left(action['expires_at'])}: harken channel confirm {action['id']}"
    if action["state"] == "declined":
        return "nothing runs"
    return str(action["reason"])


def left(stamp: str | None, now: datetime | None = None) -> str:
    """Return how much time is left until then."""
    if not stamp:
        return "no end"
    seconds = (datetime.fromisoformat(stamp) - (now or datetime.now().astimezone())).total_seconds()
    if seconds <= 0:
        return "time is over"
    return f"{seconds / MINUTE:.0f} min left" if seconds >= 2 * MINUTE else f"{seconds:.0f} s left"


def _shortened(prompt: str) -> str:
    """Return what an agent is told, as far as a screen has room, and how much more there is."""
    more = len(prompt) - PROMPT_CHARS
    return prompt if more <= 0 else f"{prompt[:PROMPT_CHARS]}\n… and {more} characters more"


def _order_rows(agent: str, workdir: str, tools: Sequence[str]) -> list[tuple[str, str]]:
    rows = [
        ("agent", title_of(agent) if agent else ANY_AGENT),
        ("folder", short(Path(workdir)) if workdir else OWN_FOLDER),
        ("tools", ", ".join(tools)),
    ]
    rows += [("to know", "a shell is not fenced: it can do what you can do")] if "shell" in tools else []
    return rows
