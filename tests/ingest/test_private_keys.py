"""No line of a private key is left: compared with what is plainly right, whatever interpreter runs it."""

from __future__ import annotations

import base64
from hashlib import shake_256
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harken.ingest.redact import RedactedText, redact

MARK = "[redacted: private key]"
PIECE = 16  # characters of base64: what is shorter may be a word
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
# Put together here so that no scanner of secrets takes this file for a leak.
LABELS = ("PRIVATE " + "KEY", "RSA PRIVATE " + "KEY", "PGP PRIVATE " + "KEY BLOCK")
BEGINNINGS = tuple(f"-----BEGIN {label}-----" for label in LABELS)
ENDINGS = tuple(f"-----END {label}-----" for label in LABELS)
OTHERS = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", "-----BEGIN ", "-----END X PRIVATE", "-----", "-")


def _key(label: str, heads: str = "", width: int = 64, end: str = "") -> str:
    """A key as programs write it: the same in every run, and none that opens anything."""
    text = base64.b64encode(shake_256(label.encode()).digest(500)).decode()
    lines = "\n".join(text[place : place + width] for place in range(0, len(text), width))
    return f"-----BEGIN {label}-----\n{heads}{lines}\n{end}-----END {label}-----"


KEYS = {
    "pkcs8": _key(LABELS[0]),
    "encrypted": _key(LABELS[1], f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,{'0A1B' * 8}\n\n"),
    "openssh": _key("OPENSSH " + LABELS[0], width=70),
    "pgp": _key(LABELS[2], "Version: GnuPG v2\nComment: see https://example.org/averylongword\n\n", end="=aB3d\n"),
}
LINE_ENDS = {
    "plain": "\n",
    "windows": "\r\n",
    "json": "\\n",
    "json in json": "\\\\n",
    "indented": "\n    ",
    "quoted": "\n> ",
    "folded": " ",
}


def _body(key: str) -> list[str]:
    return [line for line in key.splitlines() if line and "-----" not in line and ": " not in line]


@pytest.mark.parametrize("line_end", LINE_ENDS)
@pytest.mark.parametrize("kind", KEYS)
def test_whole_key_leaves_nothing_but_its_mark(kind: str, line_end: str) -> None:
    """However it was pasted: from BEGIN to END all of it is the secret."""
    key = KEYS[kind].replace("\n", LINE_ENDS[line_end])
    assert redact(f"here: {key} thanks") == RedactedText(f"here: {MARK} thanks", 1)


@pytest.mark.parametrize("line_end", LINE_ENDS)
@pytest.mark.parametrize("kind", KEYS)
def test_key_that_was_cut_anywhere_leaves_no_piece_of_itself(kind: str, line_end: str) -> None:
    """Logs and long messages are cut, and half of a key is enough for those who can guess the rest."""
    whole = KEYS[kind].replace("\n", LINE_ENDS[line_end])
    body = _body(KEYS[kind])
    pieces = {line[place : place + PIECE] for line in body for place in range(len(line) - PIECE + 1)}
    for end in range(whole.index(body[0]) + PIECE, len(whole)):
        left = redact(f"here: {whole[:end]} and so on").text
        assert left.startswith(f"here: {MARK}"), end
        assert left.endswith(" and so on"), end
        assert not any(piece in left for piece in pieces), (end, left)


@pytest.mark.parametrize("tail", ["Gx3", "aB+", "yQ=="])
def test_short_last_line_of_a_key_that_was_cut_goes_too(tail: str) -> None:
    """It is told from a word by what no word has."""
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    assert redact(f"{BEGINNINGS[0]}\n{line}\n{tail}").text == MARK
    assert redact(f"{BEGINNINGS[0]}\n{line}\n{tail}\n[… 12 characters cut]").text == f"{MARK}\n[… 12 characters cut]"
    assert redact(f"{BEGINNINGS[0]}\n{line}\nThanks, {tail}").text == f"{MARK}\nThanks, {tail}"


def _edges(text: str) -> list[tuple[int, int, bool, bool]]:
    """Every edge of a block: from where to where, whether it begins one, and whether it is one of a private key."""
    found = []
    for place in range(len(text)):
        kind = next((kind for kind in ("BEGIN", "END") if text.startswith(f"-----{kind} ", place)), "")
        if kind:
            label_at = place + len(f"-----{kind} ")
            label, dashes, _ = text[label_at : label_at + 70].partition("-----")
            bare = label.removesuffix(" BLOCK")
            is_private = (
                bool(dashes) and bare.endswith("PRIVATE KEY") and all(c in f"{ALPHABET[:26]} 0123456789" for c in bare)
            )
            found.append((place, label_at + len(label) + 5 if is_private else label_at, kind == "BEGIN", is_private))
    return found


def _without_whole_keys(text: str) -> str:
    """The plain way: as long as a BEGIN is followed by its END, everything from one to the other goes."""
    while True:
        edges = _edges(text)
        for (start, _, begins, opens), (_, end, goes_on, closes) in pairwise(edges):
            if begins and opens and closes and not goes_on:
                text = text[:start] + MARK + text[end:]
                break
        else:
            return text


@given(
    st.lists(
        st.one_of(
            st.sampled_from([*BEGINNINGS, *ENDINGS]),
            st.sampled_from([*OTHERS, "\n", " ", "\\n", "so-so", "Proc-Type: 4", "[…]"]),
            st.text("AbC9+/=", max_size=PIECE - 1),
        ),
        max_size=12,
    ).map("\n".join)
)
@example("-----BEGIN PRIVATE KEY-----Bearer Op2AsEY-----iDf6\n-----END PRIVATE KEY-----")
@example(f"{BEGINNINGS[0]}\n{BEGINNINGS[1]}\nAbC9\n{ENDINGS[1]}\n{ENDINGS[0]}")
def test_keys_go_exactly_from_begin_to_end(text: str) -> None:
    """Nothing of a key stays and nothing else goes: the same as taking them out one by one, without expressions."""
    assert redact(text).text == _without_whole_keys(text)


@given(
    st.text("-BEGIND PRIVATEKY\nAb9", max_size=400).filter(lambda inside: "-----" not in inside),
    st.sampled_from(BEGINNINGS),
    st.sampled_from(ENDINGS),
)
def test_nothing_inside_a_key_saves_it(inside: str, beginning: str, ending: str) -> None:
    """A key that somebody broke a little is still most of a key."""
    assert redact(f"a {beginning}\n{inside}\n{ending} b").text == f"a {MARK} b"
