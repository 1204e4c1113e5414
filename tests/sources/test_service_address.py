"""Where a token may go: to the configured service, encrypted, and nowhere else, whatever links and ids say."""

from __future__ import annotations

from typing import Final

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Forbidden, UserError
from harken.sources.http import ServiceAddress, part, shown

HERE: Final = ServiceAddress.parse("https://graph.microsoft.com/v1.0", "Microsoft Graph")


@pytest.mark.parametrize(
    "text",
    ["https://graph.microsoft.us/v1.0/", "http://localhost:80/v1.0", "http://127.0.0.1:1", "http://[::1]:1/v1.0"],
)
def test_an_address_that_is_encrypted_or_local_is_accepted(text: str) -> None:
    """National clouds have hosts of their own; tests and gateways are on this machine."""
    assert ServiceAddress.parse(text, "The service").url("/me").path.endswith("/me")


@pytest.mark.parametrize(
    "text",
    [
        "http://graph.microsoft.com/v1.0",
        "http://localhost.example/v1.0",
        "http://127.0.0.1.example/v1.0",
        "ftp://localhost/",
        "https://ann:secret@graph.microsoft.com/v1.0",
        "https://graph.microsoft.com/v1.0?x=1",
        "https:///v1.0",
        "graph.microsoft.com",
        "https://[::1",
        "",
    ],
)
def test_an_address_that_would_give_a_token_away_is_refused(text: str) -> None:
    """It is sent along with every request."""
    with pytest.raises(UserError) as caught:
        ServiceAddress.parse(text, "The service")
    assert "secret" not in str(caught.value.as_dict())


@pytest.mark.parametrize(
    "link",
    [
        "https://graph.microsoft.com.example/v1.0/me",
        "https://graph.microsoft.com@example.org/v1.0/me",
        "https://ann@graph.microsoft.com/v1.0/me",
        "https://graph.microsoft.com:444/v1.0/me",
        "http://graph.microsoft.com/v1.0/me",
        "file:///etc/passwd",
        "https://[::1",
    ],
)
def test_a_link_elsewhere_is_refused(link: str) -> None:
    """Links come from answers, and answers hold what others wrote."""
    with pytest.raises(Forbidden):
        HERE.url(link)
    assert HERE.begin_again(link) == ""


def test_an_error_names_the_service_it_is_about() -> None:
    """Several services are called this way: a person must know whose address to look at."""
    with pytest.raises(UserError, match=r"^Somebody's service is called over https only"):
        ServiceAddress.parse("http://service.example", "Somebody's service")
    here = ServiceAddress.parse("https://service.example", "Somebody's service")
    for link in ("https://other.example/", "https://[::1", "/../x"):
        with pytest.raises(Forbidden, match="Somebody's service"):
            here.url(link)


@pytest.mark.parametrize("path", ["/../beta/me", "/me/../../x", "..", "me//x", "/me#x", "//example.org/x"])
def test_a_path_that_leads_upwards_is_refused(path: str) -> None:
    """It would be another request than the one that was meant."""
    with pytest.raises(Forbidden):
        HERE.url(path)


def test_a_link_is_followed_as_it_was_handed_out() -> None:
    """A position in it that is encoded anew is another position."""
    link = "https://graph.microsoft.com/v1.0/me/x/delta?$deltatoken=a%2Bb+c%2F==&$select=id,from"
    assert str(HERE.url(link)) == link
    assert HERE.begin_again(link) == link
    assert HERE.url("HTTPS://GRAPH.microsoft.com:443/v1.0/x").path == "/v1.0/x"


def test_options_are_written_as_odata_reads_them() -> None:
    """A space is %20 and a plus in a time is not a space: else a filter is ignored without a word."""
    url = HERE.url("/me/chats", {"$filter": "at gt 2026-01-05T09:00:00+00:00", "$top": "50"})
    assert url.query == b"$filter=at%20gt%202026-01-05T09:00:00%2B00:00&$top=50"


@given(st.text(min_size=1))
def test_an_id_is_one_segment_whatever_is_in_it(identifier: str) -> None:
    """Ids come from outside: none may lead to another request than the one that was meant."""
    url = HERE.url(f"/chats/{part(identifier)}/messages", {"$top": "1"})
    assert url.host == "graph.microsoft.com"
    raw = url.raw_path.decode().partition("?")[0].split("/")
    assert (raw[:3], len(raw), raw[-1]) == (["", "v1.0", "chats"], 5, "messages")
    assert url.query == b"$top=1"


@given(st.text(), st.text())
def test_any_link_stays_or_is_refused(host: str, rest: str) -> None:
    """Whatever is written into an answer."""
    for link in (f"https://{host}/{rest}", f"https://graph.microsoft.com{host}/{rest}", rest):
        try:
            url = HERE.url(link)
        except Forbidden:
            continue
        assert (url.scheme, url.host, url.port) == ("https", "graph.microsoft.com", None)


def test_a_log_shows_no_query_and_no_long_segment() -> None:
    """Positions are in queries and in segments."""
    url = httpx2.URL(
        "https://graph.microsoft.com/v1.0/chats/19:0123456789abcdef0123456789abcdef@thread.v2/messages?$x=y"
    )
    assert shown(url) == "/v1.0/chats/19:01234…/messages"
