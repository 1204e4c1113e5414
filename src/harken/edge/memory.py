"""What a new daemon must be told after a restart: the handshake, what the host has set, the unanswered requests."""

from __future__ import annotations

from harken.edge.link import MAX_LINE, Codec, fields

MAX_WAITING, MAX_WAITING_BYTES = 1024, 2 * MAX_LINE  # requests without an answer
MAX_KEY = 256  # of a request that is only noted as cancelled


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
        """Forget a request that has no answer yet: what a daemon that died had offered to it did not arrive."""
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
        line = self.drop(key)
        message = codec.read(line) if is_ok else {}
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
