"""Whether the provider has checked that a mail comes from where it says: `Authentication-Results` (RFC 8601). Pure.

Anybody can write any sender into a mail. The provider that received it knows more and says so in a header; whoever
sends a mail can write such a header too, but a provider removes those with its own name. So only the topmost header
with the name that the person trusts counts, and only DMARC, which is about the sender that people see. What cannot be
read proves nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

UNVERIFIED: Final = "unverified:"  # before an address that is not proven: no rule about the address matches it
LEAST_MAILS: Final = 3  # with the same name, before it is proposed to believe it

_DMARC: Final = re.compile(r"dmarc\s*(?:/\s*\d+\s*)?=\s*([^\s;]*)")
_FROM: Final = re.compile(r"header\.from\s*=\s*([^\s;]+)")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def is_verified(results: Sequence[str], authserv_id: str, address: str) -> bool:
    """Whether the provider with that name says that a mail from this address passed its check."""
    if not authserv_id:
        return False  # a sender can write a header without a name
    for header in results:
        text = _plain(header)
        if not text:
            return False  # it cannot be read, and one below it may be the sender's own
        name, *findings = text.split(";")
        if name.split(" ")[0] == authserv_id.lower():
            return _is_pass([finding.strip() for finding in findings], address.rpartition("@")[2])
    return False


def names_only(header: str, address: str) -> bool:
    """Whether a header names this address, and no other however it is read: the provider may have read it otherwise."""
    text = _plain(header)
    return text.count("@") == 1 and address in text


def has_word_of(results: Sequence[str], authserv_id: str) -> bool:
    """Whether somebody of that name has checked a mail, whatever was found."""
    return any(_plain(header).split(";")[0].split(" ")[0] == authserv_id.lower() for header in results)


def proposed(mails: Sequence[Sequence[str]]) -> str:
    """Return the name that checks senders in most of these mails, told the results in each; empty if none does."""
    names = Counter(name for results in mails if (name := _checker(results[0] if results else "")))
    # A few mails may carry what their senders wrote.
    found = [name for name, count in names.items() if count >= LEAST_MAILS and 2 * count > len(mails)]
    return found[0] if found else ""


def _checker(header: str) -> str:
    """Return the name of who says something about the visible sender; empty if it has none that is plain."""
    name, *findings = _plain(header).split(";")
    name = name.split(" ")[0]
    is_checked = any(_DMARC.match(finding.strip()) for finding in findings)
    return name if is_checked and _NAME.fullmatch(name) else ""


def _is_pass(findings: Sequence[str], domain: str) -> bool:
    said = [(found[1], finding) for finding in findings if (found := _DMARC.match(finding))]
    # It is said once. If it is there twice, somebody got their own words into it, so all of them count.
    return bool(said) and all(verdict == "pass" and _is_about(finding, domain) for verdict, finding in said)


def _is_about(finding: str, domain: str) -> bool:
    # DMARC may be decided for the domain above the one in the address.
    domains = [each.rpartition("@")[2] for each in _FROM.findall(finding)]
    return bool(domains) and all(domain == each or domain.endswith(f".{each}") for each in domains)


def _plain(header: str) -> str:
    return " ".join(_bare(header).lower().split())


def _bare(header: str) -> str:
    """Return a header without comments and quoted texts, which may hold words of the sender; broken ones are empty."""
    kept: list[str] = []
    depth, is_quoted, is_escaped = 0, False, False
    for char in header:
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char == '"' and depth == 0:
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif char == "(":
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept) if depth == 0 and not is_quoted else ""
