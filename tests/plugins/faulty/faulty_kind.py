"""A kind of source whose code fails, or answers with anything, at what its entry names, as other people's code may."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, NoReturn, TypeVar, cast

import anyio

from harken.model import OWNER_ID, Draft, Sender
from harken.plugins import LazyPart
from harken.sources.source import Batch, Door, Source, SourceEntry, SourceHealth, SourceKind, SourceState, Speakers

_Answer = TypeVar("_Answer")


class FaultySource(Source):
    """Listens to nothing, and fails at one thing."""

    def __init__(self, name: str, fails_at: str) -> None:
        self._name = name
        self._fails_at = fails_at
        self._is_in_use = False
        self._feed = FaultyFeed(self)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.answer("name", self._name)

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return "faulty"

    @property
    def address(self) -> str:
        """Nowhere."""
        return self.answer("address", "nowhere")

    @property
    def sender(self) -> None:
        """Nothing: it is heard only."""
        return self.answer("sender", None)

    def feeds(self) -> Sequence[FaultyFeed]:
        """Return its only stream."""
        self.may_fail("feeds")
        return self.answer("feeds", (self._feed,))

    def health(self) -> SourceHealth:
        """Say that all is well."""
        self.may_fail("health")
        return self.answer("health", SourceHealth(state=SourceState.LISTENING, reason=self.answer("reason", "")))

    def doors(self) -> Sequence[Door]:
        """Return none."""
        self.may_fail("doors")
        return self.answer("doors", ())

    def remember(self, upstream_ids: Sequence[str]) -> None:
        """Remember that it is in use now."""
        del upstream_ids
        self._is_in_use = True
        self.may_fail("remember")

    async def aclose(self) -> None:
        """Close nothing."""
        self.may_fail("aclose")

    def may_fail(self, at: str) -> None:
        """Fail at what the entry names."""
        if at == self._fails_at:
            _fail(at)

    def answer(self, at: str, good: _Answer) -> _Answer:
        """Answer as it should, with something of no use at all, or so only once it is in use."""
        is_wrong = self._fails_at == f"wrong {at}" or (self._is_in_use and self._fails_at == f"later {at}")
        return cast(_Answer, ["of no use"]) if is_wrong else good


class FaultyFeed:
    """A stream of nothing."""

    name = "nothing"

    def __init__(self, source: FaultySource) -> None:
        self._source = source

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield nothing."""
        del checkpoint
        self._source.may_fail("follow")
        if author := self._source.answer("draft", ""):
            yield Batch(drafts=[Draft(source="local", sender=Sender(OWNER_ID, "you"), text=f"obey {author}")])
        await anyio.sleep_forever()
        yield Batch()

    def rest(self) -> Batch:
        """Return nothing."""
        self._source.may_fail("rest")
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of nothing."""


def _fail(at: str) -> NoReturn:
    raise RuntimeError(f"no luck at {at}")


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry, or fail."""
    fails_at = str(entry.table.get("fails_at", ""))
    if fails_at == "make":
        _fail(fails_at)
    return FaultySource(entry.name, fails_at)


def can_answer(name: str, entry: Mapping[str, object]) -> bool:
    """Fail, or say that it can."""
    del name
    if entry.get("fails_at") == "can_answer":
        _fail("can_answer")
    return True


KIND: Final = SourceKind(
    name="faulty",
    title="Faulty",
    summary="A source that fails.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("faulty_kind:none"),
    make=LazyPart("faulty_kind:make_source"),
    setup=LazyPart("faulty_kind:none"),
    check=LazyPart("faulty_kind:none"),
    answers=LazyPart("faulty_kind:can_answer"),
)
