"""What waits for its time, on the page: below the mailbox that it is for, with what it waits for, to be withdrawn."""

from __future__ import annotations

from tests.loss.rig import Served
from tests.web.test_page import Browser, ids, said


def test_scheduled_message_is_shown_below_its_mailbox_and_withdrawn_there(daemon: Served) -> None:
    """You said it, and it is nowhere among the messages: without this it would look lost."""
    browser = Browser(daemon.start())
    shown = browser.send("already here")
    later = browser.send("<b>stand-up</b>", at="tomorrow 9:20")
    page = browser.page("/m/inbox")
    assert ids(page) == [shown]
    line = said(page, "#scheduled li")
    assert line.startswith("You <b>stand-up</b> waits until ")
    assert line.endswith("09:20 Do not send")
    left = browser.post("/do/unsend", {"ref": later}, is_part=True)
    assert (left.status, left.text.strip()) == (200, "")
    assert browser.page("/m/inbox").css_first("#scheduled li") is None
    assert browser.page("/part/scheduled?mailbox=inbox").css_first("li") is None
    assert daemon.call("read", ref=later)["scheduled"]["withdrawn_by"] == "owner"
