"""Signing in to Teams and Outlook, and out again, from the command line.

The sign-in is kept where the daemon looks for it, and it sees a new one by itself: nothing is restarted. What a person
has to open or enter is told on stderr; the result is who is signed in, never a token.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import anyio

from harken.cli.authority import refuse_agent
from harken.cli.client import Result
from harken.cli.output import note_to_person
from harken.cli.source_config import entry_named
from harken.cli.start import VARIABLES
from harken.cli.verbs import Invocation
from harken.clock import SystemClock
from harken.config.home import Home, ensure
from harken.daemon.account import Account, open_account
from harken.display import one_line
from harken.errors import UserError
from harken.model import timestamp
from harken.sources.microsoft.settings import KINDS, read_settings
from harken.sources.microsoft.sign_in import CodePrompt, DelegatedSignIn, SignInRecord

AS_YOU = "What an agent answers there is sent in this name, with a line that says so."


def sign_in(asked: Invocation, name: str, *, is_device: bool) -> None:
    """Sign a person in, in the browser or by a code, and say as whom."""
    refuse_agent(asked, "sign in to sources")
    ensure(asked.home)
    account = account_of(asked.home, name)
    person = _person(account)
    done = anyio.run(_sign_in_by_code if is_device else _sign_in_in_browser, person)
    missing = _missing(account.settings.delegated().scopes, done.scopes)
    if asked.as_json:
        asked.print_json(_record(name, done, missing))
        return
    asked.screen.line(f"{one_line(name)}: signed in as {one_line(done.person.title)}.")
    if missing:
        note_to_person(f"Not granted: {', '.join(missing)}. What needs it will say so.")
    note_to_person(AS_YOU)


def sign_out(asked: Invocation, name: str) -> None:
    """Remove a sign-in from this machine."""
    refuse_agent(asked, "sign out of sources")
    was_in = anyio.run(_person(account_of(asked.home, name)).sign_out)
    state = "signed out" if was_in else "was not signed in"
    if asked.as_json:
        asked.print_json({"name": name, "state": state})
        return
    asked.screen.line(f"{one_line(name)}: {state}.")
    if was_in:
        note_to_person("Whoever was signed in goes on from here; somebody else begins with what comes then.")


def account_of(home: Home, name: str) -> Account:
    """Return the account of a source of config.toml; raises `UserError` if it is of a kind that nobody signs in to."""
    entry = entry_named(home, name)
    if entry.get("kind") not in KINDS:
        raise UserError(
            f"Nobody signs in to {name}: it is not of kind {' or '.join(KINDS)}.",
            "The secrets of an MCP server are named in its headers.",
        )
    environ = {variable: os.environ[variable] for variable in VARIABLES if variable in os.environ}
    return open_account(read_settings(name, entry), home, SystemClock(), environ)


def _person(account: Account) -> DelegatedSignIn:
    if account.person is None:
        raise UserError(
            f"{account.settings.name} is signed in by its certificate, and by nobody.",
            f"See whether that works: harken source test {account.settings.name}",
        )
    return account.person


async def _sign_in_by_code(person: DelegatedSignIn) -> SignInRecord:
    def show(prompt: CodePrompt) -> None:
        note_to_person(prompt.sentence)

    return await person.sign_in_by_code(show)


async def _sign_in_in_browser(person: DelegatedSignIn) -> SignInRecord:
    def show(address: str) -> None:
        note_to_person(f"Sign in in your browser. If none opens, open this in one on this machine:\n{address}")
        note_to_person("With a browser elsewhere only, stop this and use --device.")

    return await person.sign_in_in_browser(show)


def _missing(wanted: Iterable[str], granted: Iterable[str]) -> list[str]:
    """Return what was asked for and not granted; Entra may write a permission with the address before it."""
    had = {_bare(scope) for scope in granted}
    return [scope for scope in wanted if _bare(scope) not in had]


def _bare(scope: str) -> str:
    return scope.rpartition("/")[2].casefold()


def _record(name: str, done: SignInRecord, missing: list[str]) -> Result:
    return {
        "name": name,
        "state": "signed in",
        "as": done.person.title,
        "user_id": done.person.user_id,
        "since": timestamp(done.since),
        "granted": list(done.scopes),
        "not_granted": missing,
    }
