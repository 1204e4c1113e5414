"""The relay: MCP lines between the host's stdio and the daemon's socket, across restarts of the daemon.

When the daemon is replaced, the new one is told again what it must know: the handshake and every unanswered request.
Without a daemon each request is answered with an error. It understands no tool and keeps nothing on disk. Above it
is the host, below it the daemon's socket, named by `run/address` in the home folder.

An agent waits for this program at every start: hence the low-level modules, and `json` only after the first answer.
"""

from __future__ import annotations

import _socket
import sys
from select import select
from time import monotonic

from harken.edge.host_table import SERVER_VARIABLES
from harken.edge.link import MAX_LINE, RESTART_SECONDS, Codec, Lines, Starter, dial, fields, log, quote, variables

if sys.platform == "win32":
    import nt as posix

    PIPE_BUF = 4096
else:
    import posix
    from select import PIPE_BUF

FULL, CHUNK = 1 << 20, 1 << 16  # a buffer of FULL bytes stops the side that fills it
MAX_SENDS = 3  # a request that ends the daemon each time is not sent for ever
MAX_EARLY = 16  # lines relayed unread before the first answer
FIRST_WAIT, SHORT_WAIT, AWAY_WAIT, LONG_WAIT = 0.01, 0.2, 4.0, 30.0
PARSE_ERROR, INVALID_REQUEST, UNAVAILABLE = -32700, -32600, -32000
MAX_WAITING, MAX_WAITING_BYTES = 1024, 2 * MAX_LINE  # requests without an answer
MAX_KEY = 256  # of a request that is only noted as cancelled


def pump() -> _socket.socket:
    """Copy stdin into a socket from a thread and return that: on Windows `select` takes nothing but sockets."""
    import _thread
    from socket import socketpair

    inner, outer = socketpair()

    def copy() -> None:
        try:
            while data := posix.read(0, CHUNK):
                inner.sendall(data)
        finally:
            inner.close()

    _thread.start_new_thread(copy, ())
    return outer


class Edge:
    """The relay. All reading and writing happens in `_step`; everything else fills the two buffers."""

    def __init__(
        self, home: str, names: tuple[str, str, str], starter: Starter, patience: float, source: _socket.socket | None
    ) -> None:
        self._home, self._starter, self._patience = home, starter, patience
        self._consumer, self._task, self._variables = names
        self._name, self._parent = posix.urandom(12).hex(), posix.getppid()
        self._memory = Memory()
        self._codec: Codec | None = None
        self._early: list[bytes] = []
        self._early_answers: list[bytes] = []
        self._source = source  # instead of stdin
        self._host_lines, self._daemon_lines = Lines(), Lines()
        self._to_host, self._to_daemon = bytearray(), bytearray()
        self._sock: _socket.socket | None = None
        self._trouble: tuple[str, str, str] | None = None  # message, hint and code of the error for every request
        self._is_refused = False
        self._is_stopped = False  # a person ran `harken down`
        self._has_served = False  # an earlier connection was accepted
        self._is_heard = False  # this connection has brought a line
        self._connected_at = self._asked_at = monotonic()
        self._patience_until = self._connected_at + patience
        self._next_try, self._wait, self._refusals = 0.0, FIRST_WAIT, 0

    def run(self) -> None:
        """Relay until the host is gone."""
        while True:
            if self._early_answers and not self._to_host:
                self._understand()
            if self._sock is None and monotonic() >= self._next_try:
                self._connect(is_asked=False)
            while self._source and self._to_host:
                self._write_host()
            self._step()

    def _step(self) -> None:
        stdin = self._source.fileno() if self._source else 0
        daemon = self._sock.fileno() if self._sock else -1
        # Errors of our own fill `_to_host` too; above what the daemon alone can fill, the host must read first.
        is_host_read = len(self._to_daemon) < FULL and len(self._to_host) < MAX_LINE + 2 * FULL
        reads = [stdin] if is_host_read else []
        reads += [daemon] if self._sock and len(self._to_host) < FULL else []
        writes = ([daemon] if self._to_daemon else []) + ([1] if self._to_host else [])
        timeout = None if self._sock else max(0.0, self._next_try - monotonic())
        readable, writable, _ = select(reads, writes, (), timeout)
        if 1 in writable:
            self._write_host()
        if daemon in writable:
            self._write_daemon()
        if daemon in readable:
            self._read_daemon()
        if stdin in readable:
            self._read_host()

    def _write_host(self) -> None:
        try:  # A pipe that is writable takes PIPE_BUF bytes without blocking.
            del self._to_host[: posix.write(1, self._to_host[:PIPE_BUF])]
        except OSError:
            posix._exit(0)

    def _write_daemon(self) -> None:
        try:
            if self._sock:
                del self._to_daemon[: self._sock.send(self._to_daemon[:CHUNK])]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._to_daemon.clear()  # The reader sees the end too, after the answers that are still there.

    def _read_host(self) -> None:
        try:
            data = self._source.recv(CHUNK) if self._source else posix.read(0, CHUNK)
        except OSError:
            data = b""
        if not data:
            posix._exit(0)
        for line in self._host_lines.feed(data):
            if line is None:
                self._answer("null", INVALID_REQUEST, f"a line may have at most {MAX_LINE} bytes")
            elif not line.strip():
                continue
            elif self._codec is None and len(self._early) < MAX_EARLY and len(line) < CHUNK:
                self._early.append(line)
                self._to_daemon += line
            else:
                self._take(line, self._understand(), is_relayed=False)

    def _read_daemon(self) -> None:
        try:
            data = self._sock.recv(CHUNK) if self._sock else b""
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
        for line in self._daemon_lines.feed(data):
            if self._sock:
                self._from_daemon(line)

    def _understand(self) -> Codec:
        """Import `json` and catch up with what was relayed unread."""
        if self._codec is None:
            self._codec = Codec()
            for line in self._early:
                self._take(line, self._codec, is_relayed=True)
            for line in self._early_answers:
                self._is_for_host(line, self._codec)
            self._early, self._early_answers = [], []
        return self._codec

    def _take(self, line: bytes, codec: Codec, *, is_relayed: bool) -> None:
        """Sort a line of the host: a request is kept and relayed, what is malformed is answered here."""
        code, problem = INVALID_REQUEST, ""
        value = codec.decode(line)
        message = fields(value)
        key = codec.key(message.get("id"))
        if value is ...:
            code, problem = PARSE_ERROR, "not JSON in UTF-8"
        elif isinstance(value, list):
            problem = "batches are not supported"
        elif key and isinstance(message.get("method"), str):
            self._request(key, line, is_relayed=is_relayed)
        elif "method" in message and "id" in message:
            problem = "an id is a string or a whole number, a method is a string"
        elif "method" in message or "id" in message:
            self._note(line, message, codec)
            self._to_daemon += line if self._sock and not is_relayed else b""
        else:
            problem = "not a JSON-RPC message"
        if problem and not is_relayed:
            self._answer("null", code, problem)

    def _note(self, line: bytes, message: dict[str, object], codec: Codec) -> None:
        if message.get("method") == "notifications/initialized":
            self._memory.initialized = line
        elif message.get("method") == "notifications/cancelled":
            self._memory.cancel(codec.key(fields(message.get("params")).get("requestId")))

    def _request(self, key: str, line: bytes, *, is_relayed: bool) -> None:
        if self._is_stopped and not self._starter.is_forbidden():
            # A person started Harken again: what was said while it was stopped is no longer true.
            self._trouble, self._is_stopped, self._patience_until = None, False, monotonic() + self._patience
            self._connect(is_asked=True)
        is_down = self._trouble and not self._is_refused and self._sock is None
        if is_down and monotonic() - self._asked_at >= RESTART_SECONDS:
            self._connect(is_asked=True)
        if self._trouble:
            self._excuse(key, *self._trouble)
        elif not self._memory.add(key, line):
            self._excuse(key, "too many requests wait for an answer", "wait for some of them", "busy")
        elif self._sock:
            self._memory.sends[key] = 1
            self._to_daemon += b"" if is_relayed else line

    def _excuse(self, key: str, message: str, hint: str, code: str) -> None:
        data = f',"data":{{"code":{quote(code)},"hint":{quote(hint)}}}'
        self._answer(key, UNAVAILABLE, f"{message} ({hint})" if hint else message, data)

    def _answer(self, key: str, code: int, text: str, data: str = "") -> None:
        error = f'{{"code":{code},"message":{quote(text)}{data}}}'
        self._to_host += f'{{"jsonrpc":"2.0","id":{key},"error":{error}}}\n'.encode()

    def _excuse_all(self, message: str, hint: str, code: str) -> None:
        for key in list(self._memory.waiting):
            self._memory.give_up(key)
            self._excuse(key, message, hint, code)

    def _from_daemon(self, line: bytes | None) -> None:
        if line is None:
            self._excuse_all("an answer of Harken's daemon was too long", "ask for less at once", "too_long")
        elif line.startswith(b'{"harken"'):
            if not self._is_heard:
                self._refuse(line, self._understand())
                return
        elif self._codec is None:
            self._to_host += line
            self._early_answers += [line] if b'"result"' in line or b'"error"' in line else []
        elif self._is_for_host(line, self._codec):
            self._to_host += line
        self._is_heard, self._wait, self._refusals = True, FIRST_WAIT, 0

    def _is_for_host(self, line: bytes, codec: Codec) -> bool:
        """Note what a line of the daemon answers, and return whether to pass it on."""
        message = codec.read(line)
        if not message:
            log("dropped a line of the daemon that is no JSON-RPC message")
        if "method" in message or not message:
            return bool(message)
        is_ok = "result" in message and fields(message["result"]).get("isError") is not True
        return self._memory.settle(codec.key(message.get("id")), codec, is_ok=is_ok)

    def _hello(self, token: str) -> bytes:
        try:
            folder = posix.getcwd()
        except OSError:
            folder = ""
        resent = ",".join(self._memory.resent) if self._has_served else ""
        cancelled = ",".join(self._memory.cancelled) if self._has_served else ""
        environment = ",".join(f'"{name}":{quote(value)}' for name, value in variables(self._variables).items())
        proof = f',"token":{quote(token)}' if token else ""
        return (
            f'{{"harken":1,"kind":"mcp","edge":"{self._name}","pid":{posix.getpid()},"ppid":{self._parent},'
            f'"cwd":{quote(folder)},"consumer":{quote(self._consumer)},"task":{quote(self._task)},"resumed":{str(self._has_served).lower()},'
            f'"resent":[{resent}],"cancelled":[{cancelled}],"env":{{{environment}}}{proof}}}\n'
        ).encode()

    def _connect(self, *, is_asked: bool) -> None:
        """Try once to reach the daemon; start one if there is none and someone waits for it."""
        now = monotonic()
        if is_asked:
            self._asked_at, self._wait = now, FIRST_WAIT
        try:
            sock, token = dial(self._home)
        except OSError as exc:
            codec = self._understand()
            if isinstance(exc, (FileNotFoundError, ConnectionRefusedError)):
                self._miss(now, is_asked=is_asked)
            has_failed = self._starter.has_failed(codec)
            if not self._trouble and (self._starter.is_hopeless or now >= self._patience_until):
                self._give_up(*self._starter.trouble)
            elif has_failed and self._trouble and not self._is_stopped:
                self._trouble = self._starter.trouble  # a person may have mended one thing and not yet the next
            self._try_later(LONG_WAIT if self._trouble else SHORT_WAIT)
        else:
            self._greet(sock, token)

    def _miss(self, now: float, *, is_asked: bool) -> None:
        """Start a daemon: there is none. One that does not live long is started again for as long as we are patient."""
        if self._is_refused:  # The daemon that refused us is gone.
            self._trouble, self._is_refused = None, False
            self._wait, self._patience_until = FIRST_WAIT, now + self._patience
        if self._starter.is_forbidden():
            self._is_stopped = True
            if not self._trouble:
                self._give_up("Harken was stopped with `harken down`", "run: harken up", "unavailable")
        elif is_asked or not self._trouble:
            self._starter.start()

    def _try_later(self, longest: float) -> None:
        self._next_try = monotonic() + self._wait
        self._wait = min(self._wait * 1.5, longest)

    def _greet(self, sock: _socket.socket, token: str) -> None:
        """Introduce us on a new connection, and say again what the daemon must know."""
        self._sock, self._connected_at, self._daemon_lines = sock, monotonic(), Lines()
        self._is_heard, self._trouble, self._is_refused, self._is_stopped = False, None, False, False
        self._starter.settle()
        for key in list(self._memory.waiting):
            self._memory.sends[key] += 1
            if self._memory.sends[key] > MAX_SENDS:
                self._memory.give_up(key)
                message, hint = "Harken's daemon ended each time it got this request", "look at its log"
                self._excuse(key, message, hint, "unavailable")
        self._to_daemon[:] = self._hello(token) + (self._memory.replay(self._codec) if self._codec else b"")
        for line in self._memory.waiting.values():
            self._to_daemon += line

    def _lose(self) -> None:
        """Look for the next daemon: this one is gone. A connection that never worked does not renew the patience."""
        self._understand()
        self._hang_up()
        self._has_served = True
        now = monotonic()
        if self._is_heard or now - self._connected_at > self._patience:
            self._patience_until, self._wait, self._next_try = now + self._patience, FIRST_WAIT, now
        else:
            self._try_later(SHORT_WAIT)

    def _refuse(self, line: bytes, codec: Codec) -> None:
        """Tell the host that the daemon does not want us, and come back later in case it is replaced."""
        self._hang_up()
        error = fields(codec.read(line).get("error"))
        message = str(error.get("message", "Harken's daemon refused the connection"))
        code = str(error.get("code", "refused"))
        self._give_up(message, str(error.get("hint", "")), code)
        self._is_refused = True
        # What is only away, such as the main daemon of a satellite, may be back any moment.
        self._next_try = monotonic() + min(2.0**self._refusals, AWAY_WAIT if code == "unavailable" else 2 * LONG_WAIT)
        self._refusals = min(self._refusals + 1, 10)

    def _hang_up(self) -> None:
        if self._sock:
            self._sock.close()
        self._sock = None
        self._to_daemon.clear()

    def _give_up(self, message: str, hint: str, code: str) -> None:
        self._trouble = message, hint, code
        log(message)
        self._excuse_all(message, hint, code)


def options(words: list[str]) -> dict[str, str]:
    """Return the options; `--spawn PROGRAM` and `--patience SECONDS` are for tests."""
    found = {"--consumer": "", "--task": "", "--variables": "", "--transport": "unix"}
    found |= {"--spawn": sys.executable, "--patience": "15"}
    if len(words) % 2 or not {"--home", *found}.issuperset(words[::2]) or "--home" not in words[::2]:
        log("usage: mcp.py --home DIR [--consumer NAME] [--task ID] [--variables A,B] [--transport unix|tcp]")
        posix._exit(2)
    return found | dict(zip(words[::2], words[1::2], strict=True))


def main() -> None:
    """Run the edge until the host is gone."""
    chosen = options(sys.argv[1:])
    signals = sys.modules["_signal"]  # Every interpreter has it loaded; `signal` would import enum.
    for number in (signals.SIGTERM, signals.SIGINT):
        signals.signal(number, lambda *_: posix._exit(0))
    posix.fstat(0), posix.fstat(1)  # When these are closed, a socket of ours would take their place.
    home = chosen["--home"]
    if sys.platform != "win32" and not home.startswith("/"):
        home = posix.getcwd() + "/" + home
    # Where there are no unix sockets, stdin cannot be selected either.
    source = pump() if sys.platform == "win32" or chosen["--transport"] == "tcp" else None
    # Hosts run this without a shell; what a person sets for them is in the environment.
    task = chosen["--task"] or variables("HARKEN_TASK").get("HARKEN_TASK", "")
    names = chosen["--consumer"], task, f"{SERVER_VARIABLES} {chosen['--variables'].replace(',', ' ')}"
    Edge(home, names, Starter(chosen["--spawn"], home), float(chosen["--patience"]), source).run()


class Memory:
    """What a new daemon must be told: the handshake, the state the host has set, the unanswered requests."""

    def __init__(self) -> None:
        self.waiting: dict[str, bytes] = {}
        self.sends: dict[str, int] = {}
        self.given_up: list[str] = []
        self.cancelled: list[str] = []
        self.initialized = b""
        self._bytes = 0
        self._settings: dict[str, bytes] = {}
        self._replays: set[str] = set()
        self._count = 0

    def add(self, key: str, line: bytes) -> bool:
        """Keep a request until it is answered; return whether there is room for it."""
        self.drop(key)
        if key in self.given_up or key in self.cancelled:  # The host uses its number again.
            self.given_up = [each for each in self.given_up if each != key]
            self.cancelled = [each for each in self.cancelled if each != key]
        if len(self.waiting) >= MAX_WAITING or self._bytes + len(line) > MAX_WAITING_BYTES:
            return False
        self.waiting[key], self.sends[key] = line, 0
        self._bytes += len(line)
        return True

    @property
    def resent(self) -> list[str]:
        """The requests that an earlier daemon got and did not answer; the others are new, and follow its answers."""
        return [*(key for key, count in self.sends.items() if count > 1), *self.given_up]

    def drop(self, key: str) -> bytes:
        """Forget a request that was answered, and return it."""
        line = self.waiting.pop(key, b"")
        self.sends.pop(key, None)
        self._bytes -= len(line)
        return line

    def give_up(self, key: str) -> None:
        """Forget a request that has no answer, or only an error: what a daemon had offered to it did not arrive."""
        if self.drop(key):
            self.given_up = [*self.given_up, key][-MAX_WAITING:]

    def cancel(self, key: str) -> None:
        """Note that the host cancelled a request; one that was answered too, as the two may have crossed."""
        if key in self.waiting:
            self.give_up(key)
        elif 0 < len(key) <= MAX_KEY:
            self.cancelled = [*self.cancelled, key][-MAX_WAITING:]

    def settle(self, key: str, codec: Codec, *, is_ok: bool) -> bool:
        """Note an answer, and return whether it is for the host; answers to replays are not."""
        if key in self._replays:
            self._replays.discard(key)
            return False
        if not is_ok:
            self.give_up(key)
            return True
        line = self.drop(key)
        message = codec.read(line)
        method = message.get("method")
        if method in {"initialize", "logging/setLevel"}:
            self._settings[str(method)] = line
        elif method in {"resources/subscribe", "resources/unsubscribe"}:
            uri = "uri " + codec.encode(fields(message.get("params")).get("uri"))
            self._settings.pop(uri, None)
            if method == "resources/subscribe" and len(self._settings) < MAX_WAITING:
                self._settings[uri] = line
        return True

    def replay(self, codec: Codec) -> bytes:
        """Return the handshake and the settings as lines with ids of our own."""
        self._replays.clear()
        lines = b""
        for name in sorted(self._settings, key=lambda name: name != "initialize"):
            self._count += 1
            identifier = f"harken-replay-{self._count}"
            self._replays.add(codec.key(identifier))
            lines += codec.encode(codec.read(self._settings[name]) | {"id": identifier}).encode() + b"\n"
            lines += self.initialized if name == "initialize" else b""
        return lines
