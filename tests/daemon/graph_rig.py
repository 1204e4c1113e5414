"""What the runs of Teams and Outlook share: settings that lead to the service on loopback, a sign-in, the journal.

The daemon is the real one in a process of its own and so is the command that signs in. Nothing here looks into either:
what has arrived is read from the journal's files, which can be read whether a daemon runs or not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.cli.rig import Rig
from tests.graph.service import Graph

POLL_SECONDS: Final = 5

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""


def add_account(home: Path, graph: Graph, name: str, kind: str, more: str = "") -> None:
    """Write the settings of an account of the service, looked at as often as is allowed."""
    home.mkdir(mode=0o700, exist_ok=True)
    with (home / "config.toml").open("a") as file:
        file.write(
            f'[sources.{name}]\nkind = "{kind}"\ntenant = "{graph.tenant}"\nclient_id = "{graph.client_id}"\n'
            f'graph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\nca = "{graph.ca}"\n'
            f'poll = {POLL_SECONDS}\ntrust = "known"\n{more}'
        )


def add_agent(home: Path, graph: Graph, name: str) -> None:
    """Write the settings of an Agent User that the service knows, and its certificate beside them."""
    agent = graph.register_agent()
    key = agent.signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = home / "agent.pem"
    home.mkdir(mode=0o700, exist_ok=True)
    pem.touch(mode=0o600)
    pem.write_bytes(key + agent.signer.certificate.public_bytes(Encoding.PEM))
    with (home / "config.toml").open("a") as file:
        file.write(
            f'[sources.{name}]\nkind = "teams"\nsign_in = "agent"\ntenant = "{graph.tenant}"\n'
            f'blueprint_id = "{agent.blueprint_id}"\nagent_id = "{agent.identity_id}"\nuser_id = "{agent.user.id}"\n'
            f'certificate = "file:agent.pem"\ngraph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\n'
            f'ca = "{graph.ca}"\npoll = {POLL_SECONDS}\n'
        )


def sign_in(home: Path, graph: Graph, name: str) -> None:
    """Let the person enter a code that the command line shows."""
    graph.sign_in.device_interval = 1
    done = Rig(home).run("source", "login", name, "--device")
    assert done.code == 0, done


@dataclass
class Arrivals:
    """Every message that the journal says was received, in its order, read on from where the last look ended."""

    home: Path
    messages: list[Json] = field(default_factory=list[Json])
    _read: dict[Path, int] = field(default_factory=dict[Path, int])

    def look(self) -> list[Json]:
        """Return what is new since the last look; a line that is still being written waits for the next."""
        new: list[Json] = []
        for file in sorted((self.home / "journal").glob("*.jsonl")):
            with file.open("rb") as stream:
                stream.seek(self._read.get(file, 0))
                whole, newline, _ = stream.read().rpartition(b"\n")
            self._read[file] = self._read.get(file, 0) + len(whole) + len(newline)
            lines = [json.loads(line) for line in whole.splitlines()]
            new += [line["message"] for line in lines if line["kind"] == "received"]
        self.messages += new
        return new

    def texts(self) -> list[str]:
        """Return what was said, as far as was looked."""
        return [message["content_text_sanitized"] for message in self.messages]

    def find(self, text: str) -> Json | None:
        """Look, and return the first message that holds a text."""
        self.look()
        return next((each for each in self.messages if text in each["content_text_sanitized"]), None)
