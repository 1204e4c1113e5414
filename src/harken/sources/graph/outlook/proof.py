"""Whether a mail is proven to come from the address that it names. Pure: headers in, a verdict out.

Anybody can write any sender into a mail. Exchange knows more and says so in the headers: a mail of the organisation's
own people is marked as internal, which it lets nobody write from outside; for all others the topmost
`Authentication-Results` is its own, with `compauth` as its verdict and `dmarc` as that of the sender's domain. Headers
further down may be the sender's. What cannot be read proves nothing. Above is `reading.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

UNVERIFIED: Final = "unverified:"  # before an address that is not proven: no rule about the address matches it
MOST_CHARS: Final = 8_000

_AUTH_AS: Final = "x-ms-exchange-organization-authas"
_RESULTS: Final = "authentication-results"
_COMMENT: Final = re.compile(r"\([^()]*\)")
_FINDING: Final = re.compile(r"(compauth|dmarc)\s*=\s*([a-z]+)\b")
_ABOUT: Final = re.compile(r"\bheader\.from\s*=\s*([^\s;]+)")


def is_proven(headers: Sequence[tuple[str, str]], address: str) -> bool:
    """Whether the organisation that received a mail vouches for this address; `headers` are the topmost first."""
    marks = [value.strip().lower() for name, value in headers if name.strip().lower() == _AUTH_AS]
    if marks and set(marks) == {"internal"}:
        return True
    results = next((value for name, value in headers if name.strip().lower() == _RESULTS), "")
    return _is_pass(results, address.rpartition("@")[2])


def _is_pass(results: str, domain: str) -> bool:
    # Comments hold words of the sender.
    bare = _COMMENT.sub(" ", results[:MOST_CHARS].lower())
    if not domain or len(results) > MOST_CHARS or any(sign in bare for sign in '()"\\'):
        return False
    findings = [found for piece in bare.split(";") if (found := _FINDING.match(piece.strip()))]
    # Each is said once. If one is there twice, somebody got their own words into it, so all of them count.
    verdicts = {name: {found[2] for found in findings if found[1] == name} for name in ("compauth", "dmarc")}
    if any(not _is_of(said, domain) for said in _ABOUT.findall(bare)):
        return False
    composite = verdicts["compauth"] - {"none"}
    return (composite or verdicts["dmarc"]) == {"pass"}


def _is_of(said: str, domain: str) -> bool:
    about = said.rpartition("@")[2]
    # The verdict may be about the domain above the one in the address.
    return domain == about or domain.endswith(f".{about}")
