"""What Tab offers, found in the table of commands without click; whatever is odd on the line is left to click."""

from __future__ import annotations

from types import MappingProxyType

from harken.cli.invocation import COMPLETE_VARIABLE, CommandTable, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from harken.cli.invocation import CommandRow, Parameter
    from harken.cli.offers import Offer

    TypedOffer = tuple[str, str, str]
    """What it is (`plain`, or `dir` and `file`, which the shell finds itself), the word, and what is said about it."""

_SPECIAL: Final = "'\"\\"


def _bash(kind: str, word: str, _about: str) -> str:
    return f"{kind},{word}"


def _zsh(kind: str, word: str, about: str) -> str:
    return f"{kind}\n{word.replace(':', chr(92) + ':')}\n{about}" if about else f"{kind}\n{word}\n_"


def _fish(kind: str, word: str, about: str) -> str:
    return f"{kind},{word}\t{about}" if about else f"{kind},{word}"


_FORMATS: Final[Mapping[str, Callable[[str, str, str], str]]] = MappingProxyType(
    {"bash": _bash, "zsh": _zsh, "fish": _fish}
)


def offer(environ: Mapping[str, str]) -> int | None:
    """Print what a shell asks for and return the exit code; None when click has to answer."""
    shell, _, order = environ[COMPLETE_VARIABLE].partition("_")
    line = _line(shell, environ) if order == "complete" and shell in _FORMATS else None
    found = line and find_offers(*line)
    if found is None or line is None:
        return None
    print("\n".join(_FORMATS[shell](*each) for each in found))
    return 0


def _line(shell: str, environ: Mapping[str, str]) -> tuple[list[str], str] | None:
    """Return the words before the one that is typed, and that one; None where quotes would have to be read."""
    text, place = environ.get("COMP_WORDS", ""), environ.get("COMP_CWORD", "")
    if any(char in text + place for char in _SPECIAL) or place == "=":
        return None
    words = text.split()
    if shell == "fish":
        before = words[1:-1] if place and words[1:] and words[-1] == place else words[1:]
        return (before, place) if len(place.split()) <= 1 else None
    if not place.isdecimal():
        return None
    number = int(place)
    return words[1:number], words[number] if number < len(words) else ""


def find_offers(words: list[str], begin: str) -> list[TypedOffer] | None:
    """Return what can stand in the place of the word that is typed."""
    table, path, home = CommandTable(), "", None
    while True:
        row = table.find(path)
        if row is None or any(each[2] == "custom" and not each[0] for each in row.parameters):
            return None
        pending = _option(row, words[-1]) if words else None
        said = split(words[:-1] if pending else words, row.parameters, is_group=row.is_group)
        if pending and row.is_group and said and said[1]:
            pending, said = (
                None,
                split(words, row.parameters, is_group=True),
            )  # it is an option of the verb, or its word
        if said is None:
            return None
        options, others = said
        home = options.get("home") or home
        if not row.is_group or not others:
            break
        path = f"{path} {others[0]}" if path else others[0].replace("_", "-")
        words = others[1:]
    if begin.startswith("-"):
        return None if pending or "=" in begin else _flags(row, options, begin)
    arguments = [each for each in row.parameters if not each[0]]
    wanted = pending or next((each for n, each in enumerate(arguments) if each[2] == "words" or n >= len(others)), None)
    if wanted is not None:
        values = {**options, **dict(zip((each[1] for each in arguments), others, strict=False))}
        return _values(wanted, values, begin, home)
    verbs = table.below(path) if row.is_group else []
    return [("plain", name, each.help) for each in verbs if (name := each.path.split(" ")[-1]).startswith(begin)]


def _option(row: CommandRow, flag: str) -> Parameter | None:
    """Return the option whose value comes next."""
    return next((each for each in row.parameters if flag in each[0] and each[2] not in ("flag", "eager")), None)


def _flags(row: CommandRow, options: Mapping[str, str], begin: str) -> list[TypedOffer]:
    return [
        ("plain", flag, about)
        for flags, name, kind, _, _, about in row.parameters
        for flag in flags
        if flag.startswith(begin) and (name not in options or kind.startswith("many"))
    ]


def _values(wanted: Parameter, values: dict[str, str], begin: str, home: str | None) -> list[TypedOffer] | None:
    """Return what an option or argument may be; None when only click knows."""
    kind, finder = wanted[2], wanted[4]
    if finder == "?":
        return None
    if finder:
        from harken.cli import offers

        find: Callable[[offers.CompletionQuery, str], list[Offer]] = getattr(offers, finder)
        return [("plain", *each) for each in find(offers.CompletionQuery(home, values), begin)]
    kind, _, bounds = kind.removeprefix("many ").partition(" ")
    if kind == "choice":
        return [("plain", each, "") for each in bounds.split("|") if each.startswith(begin)]
    return [(kind, begin, "")] if kind in ("dir", "file") else []
