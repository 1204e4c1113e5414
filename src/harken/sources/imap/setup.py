"""Setting up a mail account: what a person must know and bring, asked for a question at a time or given as options.

The password is never asked for nor written: only where it is kept. It says what the account lets agents do, and that
anybody can write any sender into a mail.
"""

from __future__ import annotations

from collections.abc import Mapping

from harken.sources.imap.settings import IMAP, ImapKeys, is_address, read_settings, smtp_of
from harken.sources.settings import options_of
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

_ANYBODY = "Anybody can write any sender into a mail."


class ImapSetup(SourceSetup):
    """How a mail account is set up."""

    options = options_of(ImapKeys)
    help_text = "Add a mail account; its name is mail unless you say so."

    def usual_name(self, values: SetupValues) -> str:
        """Return what most people call it."""
        del values
        return "mail"

    def missing(self, values: SetupValues) -> str:
        """Return what an account cannot do without."""
        for key in ("host", "user"):
            if not values.get(key):
                return f"--{key}"
        return "" if values.get("password") or values.get("token") else "--password"

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask the person for what is missing, a question each."""
        console = context.console
        console.tell(
            "Most providers want an app password for programs like this one: make one in the settings of your account, "
            "and keep it outside of config.toml."
        )
        found: dict[str, object] = dict(values)
        host = text_of(values, "host") or console.prompt("The IMAP server, such as imap.example.org")
        user = text_of(values, "user") or console.prompt("Who signs in, often the address")
        found |= {"host": host, "user": user}
        if not (values.get("password") or values.get("token")):
            usual = f"env:{''.join(c if c.isalnum() else '_' for c in name.upper())}_PASSWORD"
            found["password"] = console.prompt("Where the password is kept: env:NAME, file:PATH", usual)
        if not values.get("smtp_host") and smtp_of(host) is None:
            found["smtp_host"] = console.prompt("The server that sends answers (empty: only listen)", "")
        if not values.get("from") and not is_address(user) and (found.get("smtp_host") or smtp_of(host)):
            found["from"] = console.prompt("The address that answers are from")
        voucher = self._voucher(name, found, context)
        if voucher and _is_believed(voucher, context):
            found["authserv_id"] = voucher
        return {**found, "ASKED": True}

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written."""
        del name, context
        return written(IMAP, {key: value for key, value in values.items() if key.islower()})

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say who may answer as whom, and how far a sender can be believed."""
        settings = read_settings(name, entry)
        since = text_of(entry, "since")
        taken = f"Of the mail that is there, what came in the last {since} is taken" if since else ""
        notes = [f"{taken or 'Mail that is there already is not taken'}, and nothing in the mailbox is changed."]
        if settings.smtp is not None:
            notes.append(
                f"Agents can answer through {settings.smtp.host}, as {settings.address}, with a line that says so."
            )
            if settings.smtp.is_readable_on_the_way:
                place = settings.smtp.host
                notes.append(f"Warning: answers reach {place} unencrypted: who is on the way can read them.")
        else:
            notes.append("It cannot be answered: add --smtp-host for that.")
        if settings.trust_from:
            warning = f"Warning: {_ANYBODY} With trust_from it is believed, so allow nobody and be no owner by mail."
            return SetupOutcome(notes=[*notes, warning])
        if settings.authserv_id:
            believed = f"{_ANYBODY} It is believed if {settings.authserv_id} vouches for it, else it is unverified."
            return SetupOutcome(notes=[*notes, believed])
        notes.append(f"{_ANYBODY} Until you set authserv_id nobody is believed: every id begins with unverified:.")
        if voucher := "" if values.get("ASKED") else self._voucher(name, values, context):
            notes.append(f"{voucher} vouches for senders: set authserv_id to it, if it is your provider's.")
        else:
            notes.append(f"harken source test {name} says who vouches for senders, once there is mail.")
        return SetupOutcome(notes=notes)

    def _voucher(self, name: str, values: SetupValues, context: SetupContext) -> str:
        """Return who vouches for senders in this account, if that is not known yet and somebody can look."""
        # On use: what speaks IMAP takes long to import.
        from harken.sources.imap.check import find_voucher

        table = self.entry(name, values, context)
        settings = read_settings(name, table)
        is_decided = bool(settings.authserv_id) or settings.trust_from
        return "" if is_decided else find_voucher(settings, context.entry(name, table))


def _is_believed(name: str, context: SetupContext) -> bool:
    context.console.tell(
        f"{_ANYBODY} In your newest mails {name} says whether a sender is who they say. "
        "Believe it only if that is a name of your provider."
    )
    return context.console.confirm("Believe it?")
