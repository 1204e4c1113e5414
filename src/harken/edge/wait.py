"""What a Copilot CLI agent starts in the background to be woken: `python -I -S wait.py --home DIR copilot-cli`.

It ends when a message waits, having printed it, and Copilot starts a turn for the end of a shell. It outlives daemons,
which are looked for again, but not the conversation: a host that is gone has no session to wake. Two hooks belong to
it: `--allow COMMAND` lets that very command run without a question, `--remind COMMAND` has a forgotten one started
again. Above it is the host's shell, below it the daemon's socket. It keeps one file per process of the host, to be
alone.
"""

from __future__ import annotations

import os
import select
import sys
from time import monotonic, sleep

sys.path.append(__file__[: -len("/harken/edge/wait.py")])

from harken.edge.host_table import WAITERS
from harken.edge.link import Codec, Lines, dial, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0  # between two tries to find a daemon
SERVED_SECONDS = 5.0
LOOK_SECONDS = 3.0  # between two looks whether the host is still there
SEND_SECONDS, CHUNK = 5.0, 1 << 16
MAX_PAYLOAD, MAX_ID = 1 << 20, 128
MAX_REMINDERS = 2


def facts(host: str) -> tuple[str, ...]:
    """Return where a host's session id, process and folder are found; nothing for one that keeps no waiter."""
    return next((row[1:] for row in WAITERS if row[0] == host), ())


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def is_plain(session: str) -> bool:
    """Whether an id can be part of a path."""
    return 0 < len(session) <= MAX_ID and session.isascii() and session.replace("-", "").replace("_", "").isalnum()


class Conversation:
    """The host's conversation, as its folder tells: a process that has it open leaves a file with its id there."""

    def __init__(self, host: str, session: str) -> None:
        _, process, home, folder = facts(host)
        state = os.environ.get(home) or os.path.expanduser(folder)
        self._folder = f"{state}/session-state/{session}"
        self._was_seen = False
        named = os.environ.get(process, "")
        owners = self._owners()
        # A host that leaves no such file is known by its process alone.
        self.host = next(filter(is_running, owners), int(named) if named.isdecimal() else os.getppid())

    def is_open(self) -> bool:
        """Whether a running host has it open: after a while a host goes on with another one."""
        owners = self._owners()
        return any(map(is_running, owners)) if self._was_seen else is_running(self.host)

    def _owners(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            names = []
        middles = [name[len("inuse.") : -len(".lock")] for name in names if name.startswith("inuse.")]
        owners = [int(middle) for middle in middles if middle.isdecimal()]
        self._was_seen = self._was_seen or bool(owners)
        return owners


def lock_file(home: str, host: int) -> str:
    """Return the file that the waiter of a host's process holds."""
    return f"{home}/run/waiters/{host}"


def claim(path: str, *, is_made: bool) -> int:
    """Return a lock that is held as long as this process lives; -1: another holds it, -2: there is none."""
    import fcntl

    try:
        if is_made:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if is_made else 0), 0o600)
    except OSError:
        return -2
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return -1
    return lock


def say(text: str) -> None:
    """Print everything, or raise `OSError`."""
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(1, data) :]


def hello(host: str, session: str, token: str) -> bytes:
    """Return the first line of a connection."""
    fields = {
        "kind": quote("wake"),
        "host": quote(host),
        "native": quote(session),
        "once": "true",
        "pid": str(os.getpid()),
        "ppid": str(os.getppid()),
        "cwd": quote(os.environ.get("PWD", "")),
        "env": f"{{{quote(facts(host)[0])}:{quote(session)}}}",
        "token": quote(token),
    }
    return ('{"harken":1,' + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}\n").encode()


def hear(sock: _socket.socket, conversation: Conversation, codec: Codec) -> tuple[str, str]:
    """Return the name and the text of a wake; empty when the daemon went away or the conversation is over."""
    lines = Lines()
    while conversation.is_open():
        if not select.select([sock], [], [], LOOK_SECONDS)[0]:
            continue
        data = sock.recv(CHUNK)
        for line in lines.feed(data):
            message = codec.read(line or b"")
            carrier, text = message.get("wake"), message.get("text")
            if isinstance(carrier, str) and isinstance(text, str):
                return carrier, text
        if not data:
            break
    return "", ""


def hand_over(sock: _socket.socket, codec: Codec, carrier: str, text: str) -> None:
    """Print a text and say whether that worked. The daemon may be gone by now, which changes nothing."""
    word: dict[str, str] = {"done": carrier}
    try:
        say(text)
    except OSError as exc:
        word = {"failed": carrier, "reason": str(exc)}
    try:
        sock.settimeout(SEND_SECONDS)
        sock.send(codec.encode(word).encode() + b"\n")
    except OSError:
        return


def listen(home: str, host: str, session: str, conversation: Conversation, after: str) -> None:
    """Return when a message was handed over or the conversation is over."""
    codec, wait = Codec(), FIRST_WAIT
    while conversation.is_open():
        began = monotonic()
        try:
            sock, token = dial(home)
            try:
                sock.settimeout(SEND_SECONDS)
                sock.send(hello(host, session, token))
                carrier, text = hear(sock, conversation, codec)
                if carrier:
                    hand_over(sock, codec, carrier, f"{text}\n\n{after}\n")
                    return
            finally:
                sock.close()
        except OSError:
            pass  # no daemon, or one that is going away
        # One that served for a while is replaced soon; one that is not there, or turns us away, is asked rarely.
        wait = FIRST_WAIT if monotonic() - began > SERVED_SECONDS else wait
        pause(conversation, wait)
        wait = min(wait * 2, LONGEST_WAIT)


def pause(conversation: Conversation, seconds: float) -> None:
    """Wait, but not longer than there is a session to wake."""
    end = monotonic() + seconds
    while (left := end - monotonic()) > 0 and conversation.is_open():
        sleep(min(left, LOOK_SECONDS))


def start(home: str, host: str, session: str) -> None:
    """Wait for a message, alone."""
    import shlex

    conversation = Conversation(host, session)
    path = lock_file(home, conversation.host)
    lock = claim(path, is_made=True)
    if lock == -1:
        say("Harken listens for this session already.\n")
        return
    if lock >= 0:
        os.ftruncate(lock, 0)
    after = how_to_start(shlex.join(sys.orig_argv), "Harken stopped listening. To hear of later messages, start")
    listen(home, host, session, conversation, after)
    if lock >= 0 and not is_running(conversation.host):
        os.unlink(path)


def how_to_start(command: str, wish: str) -> str:
    """Say how the waiter is started."""
    return f'{wish} this again with the bash tool, exactly as it is, with mode "async" and detach true: {command}'


def payload() -> dict[str, object]:
    """Return what the host says to a hook; empty when it is nothing to work with."""
    data = sys.stdin.buffer.read(MAX_PAYLOAD)
    return Codec().read(data)


def spellings(command: str) -> list[str]:
    """Return how the waiter's command may be written: as it is, and with the real names of its program and its script.

    A script that Copilot may read, in the project or a temporary folder, is run by what it has looked at: the files
    that links lead to. A waiter started so knows no other name of itself to be started again by.
    """
    import shlex

    match shlex.split(command):
        case [program, *options, script, "--home", home, name]:
            programs, scripts = [program, os.path.realpath(program)], [script, os.path.realpath(script)]
            return [shlex.join([p, *options, s, "--home", home, name]) for p in programs for s in scripts]
        case _:
            return [command]


def allow(command: str) -> None:
    """Answer the host's question whether a command may run, if it is the waiter's own to the letter."""
    asked = payload()
    given = asked.get("toolInput")
    if asked.get("toolName") == "bash" and isinstance(given, dict) and given.get("command") in spellings(command):
        say('{"behavior":"allow"}\n')


def remind(home: str, command: str) -> None:
    """Have a waiter started again that the same host had before, in this conversation or one before it.

    Of several hooks that hold up the end of a turn the host hears only one, so this may be lost: it is said twice in
    a turn at most.
    """
    asked = payload()
    if not isinstance(asked.get("sessionId"), str) or not asked["sessionId"] or asked.get("parentAgentId"):
        return
    lock = claim(lock_file(home, os.getppid()), is_made=False)
    if lock < 0:
        return
    count = len(os.read(lock, MAX_REMINDERS)) if asked.get("stop_hook_active") is True else 0
    if count >= MAX_REMINDERS:
        return
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"." * (count + 1), 0)
    reason = how_to_start(command, "Harken does not listen for this session any more. Start")
    say(Codec().encode({"decision": "block", "reason": reason}) + "\n")


def main(arguments: list[str]) -> None:
    """Do what the arguments say; wrong ones end it quietly, because a host would mind."""
    match arguments:
        case ["--home", home, host] if facts(host):
            session = os.environ.get(facts(host)[0], "")
            if is_plain(session):
                start(home, host, session)
        case ["--home", _, host, "--allow", command] if facts(host):
            allow(command)
        case ["--home", home, host, "--remind", command] if facts(host):
            remind(home, command)
        case _:
            return


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError):
        os._exit(0)
