"""Writing in the page: what keys do, what is said before and after, and that a text is neither lost nor sent twice."""

from __future__ import annotations

from playwright.sync_api import Route, expect

from tests.browser.rig import AWAY, Site, only_expected

ENTER = "new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true })"

BREAK_OFF = """
const whole = Response.prototype.text;
window.broken = [];
Response.prototype.text = function () {
  const part = new URL(this.url).pathname.match(/^.part.(forecast|palette)/)?.[0];
  if (!part || broken.includes(part)) return whole.call(this);
  broken.push(part);
  return Promise.reject(new TypeError("Failed to fetch"));
};
"""


def test_enter_sends_once_what_is_written_and_shift_enter_breaks_the_line(site: Site) -> None:
    """It is how every place to chat works; a message that leaves half-written cannot be taken back."""
    window = site.window()
    window.field.press_sequentially("first line")
    window.field.press("Shift+Enter")
    window.field.press_sequentially("second line")
    expect(window.field).to_have_value("first line\nsecond line")
    assert site.texts() == []
    window.field.press("Enter")
    expect(window.items).to_have_count(1)
    expect(window.field).to_have_value("")
    expect(window.field).to_be_focused()
    assert site.texts() == ["first line\nsecond line"]

    # Enter is pressed by accident more often than anything else.
    window.field.press("Enter")
    window.say("   ")
    expect(window.field).to_have_value("   ")

    # Whoever writes Japanese or Chinese presses Enter to choose a word: it is not meant for the page.
    console = window.console()
    window.field.fill("")
    console.send("Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3})
    expect(window.field).to_have_value("にほん")
    # What browsers send for the Enter that the input method takes: a key without a name, number 229.
    for kind in ("rawKeyDown", "keyUp"):
        console.send("Input.dispatchKeyEvent", {"type": kind, "key": "Process", "windowsVirtualKeyCode": 229})
    window.field.evaluate(f"(field) => field.dispatchEvent({ENTER.replace('{', '{ isComposing: true,', 1)})")
    console.send("Input.insertText", {"text": "日本"})
    expect(window.field).to_have_value("日本")
    assert len(site.texts()) == 1
    window.field.press("Enter")
    expect(window.items).to_have_count(2)

    # Keys repeat and people are impatient: what they see sent once must be stored once. A second `yes` is a message.
    window.field.fill("yes")
    window.field.evaluate(f"(field) => {{ for (let i = 0; i < 3; i++) field.dispatchEvent({ENTER}); }}")
    window.page.get_by_role("button", name="Send", exact=True).dblclick(no_wait_after=True)
    expect(window.items).to_have_count(3)
    expect(window.field).to_have_value("")
    window.say("yes")
    expect(window.items).to_have_count(4)
    assert site.texts()[1:] == ["日本", "yes", "yes"]


def test_what_will_happen_is_said_before_and_after(site: Site) -> None:
    """Before sending people want to know whether it disturbs, afterwards whether it arrived."""
    site.task("api")
    site.conversation("api").prompt("begin")
    window = site.window("/m/task:api")
    expect(window.outlook).to_contain_text("Your message")
    before = window.outlook.inner_text()
    high = window.page.get_by_role("checkbox", name="High priority")
    window.field.fill("hurry")
    window.field.press("Alt+h")
    expect(high).to_be_checked()
    expect(window.field).to_be_focused()
    window.field.press("Enter")
    expect(window.outlook).to_contain_text("Sent. It ")
    expect(high).not_to_be_checked()
    expect(window.items.locator(".mark-high")).to_have_text("high priority")
    stored = site.daemon.call("list", mailbox="task:api")["messages"]
    assert [each["priority"] for each in stored] == ["high"]
    window.field.press_sequentially("n")
    expect(window.outlook).to_have_text(before)


def test_text_is_kept_while_the_daemon_is_away_and_sent_once_when_it_is_back(site: Site) -> None:
    """A text that took minutes to write must survive whatever happens to the other side, also a reload."""
    window = site.window()
    expect(window.page.locator("#connection")).to_be_hidden()
    site.daemon.kill()
    window.say("a long and careful text")
    expect(window.outlook).to_contain_text("Not sent")
    expect(window.outlook).to_contain_text("Your text is kept")
    expect(window.field).to_have_value("a long and careful text")
    expect(window.field).to_be_editable()
    site.restart()
    expect(window.page.locator("#connection")).to_be_hidden()
    window.reload()
    expect(window.field).to_have_value("a long and careful text")
    window.field.press("Enter")
    expect(window.items).to_have_count(1)
    expect(window.field).to_have_value("")
    window.reload()
    expect(window.items).to_have_count(1)
    expect(window.field).to_have_value("")
    assert site.texts() == ["a long and careful text"]
    assert only_expected(window.complaints, AWAY) == []


def test_answer_that_got_lost_does_not_double_the_message(site: Site) -> None:
    """The message was stored and only the answer did not come: sending again must not say it twice."""
    window = site.window()

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    window.page.route("**/do/send", lose, times=1)
    window.say("exactly once")
    expect(window.outlook).to_contain_text("Not sent")
    expect(window.field).to_have_value("exactly once")
    window.field.press("Enter")
    expect(window.outlook).to_contain_text("Sent before.")
    expect(window.items).to_have_count(1)
    assert site.texts() == ["exactly once"]


def test_text_beside_peers_is_as_safe(site: Site) -> None:
    """Side by side every task has its own field: the same promises hold there."""
    site.task("web")
    site.task("api", "web")
    window = site.window("/t/api")
    fields = window.page.locator(".board").get_by_role("textbox")
    expect(fields).to_have_count(2)
    fields.nth(0).press_sequentially("for api")
    fields.nth(0).press("Shift+Enter")
    fields.nth(1).fill("for web")
    site.daemon.kill()
    fields.nth(1).press("Enter")
    expect(window.page.locator(".board").nth(1)).to_contain_text("Not sent")
    expect(fields.nth(1)).to_have_value("for web")
    site.restart()
    window.reload()
    expect(fields.nth(0)).to_have_value("for api\n")
    expect(fields.nth(1)).to_have_value("for web")
    for number in (0, 1):
        fields.nth(number).press("Enter")
        fields.nth(number).press("Enter")
        expect(fields.nth(number)).to_have_value("")
    expect(window.page.locator(".board .item")).to_have_count(2)
    assert [site.texts("task:api"), site.texts("task:web")] == [["for api"], ["for web"]]


def test_somebody_who_was_signed_out_is_told_and_keeps_the_text(site: Site) -> None:
    """A session ends while the page is open: the text must not vanish into a refused request."""
    window = site.window(is_own=True)
    expect(window.page.locator("#connection")).to_be_hidden()
    window.page.evaluate("() => harken.ask('/sign-out', { method: 'POST' })")
    window.say("still here")
    expect(window.outlook).to_contain_text("signed out")
    expect(window.outlook).to_contain_text("harken open")
    expect(window.field).to_have_value("still here")
    window.enter(site.daemon.call("sign_in")["url"])
    window.goto("/m/inbox")
    expect(window.field).to_have_value("still here")
    window.field.press("Enter")
    expect(window.items).to_have_count(1)
    assert site.texts() == ["still here"]


def test_answer_that_breaks_off_on_its_way_is_as_none(site: Site) -> None:
    """The daemon may be killed in the middle of one; the page must go on, and ask again."""
    window = site.window(is_own=True)
    window.page.add_init_script(BREAK_OFF)
    window.reload()
    for key, part in (("Alt+h", "forecast"), ("Control+k", "palette")):
        with window.page.expect_response(f"**/part/{part}*"):
            window.page.keyboard.press(key)
    expect(window.page.locator("#palette")).to_be_visible()
    assert window.complaints == []


def test_refusal_is_shown_beside_the_text_that_is_kept(site: Site) -> None:
    """A task that is done takes no mail: that must be said where the person looks, and cost them nothing."""
    site.task("api")
    window = site.window("/m/task:api")
    window.field.fill("one more thing")
    window.hide()  # it is not told in time
    site.daemon.call("task_done", task="api")
    window.field.press("Enter")
    expect(window.outlook.locator(".problem")).to_contain_text("done")
    expect(window.field).to_have_value("one more thing")


def test_what_is_said_about_a_sent_message_follows_its_ledger(site: Site) -> None:
    """A line that says `will be shown` beside a message that was read, or never will be, is not believed again."""
    mailbox = site.task("web")
    agent = site.agent("some-agent", task="web")
    agent.tool("check_inbox")
    window = site.window(f"/m/{mailbox}")
    window.say("first")
    expect(window.outlook).to_contain_text("Sent. It ")
    agent.tool("check_inbox")
    expect(window.outlook).to_contain_text("Sent. It was offered to web")
    agent.tool("inbox_status")
    expect(window.outlook).to_contain_text("Sent. It was seen by web")
    window.say("second")
    expect(window.items).to_have_count(2)
    expect(window.outlook).not_to_contain_text("was seen")
    before = window.outlook.inner_text()
    agent.close()
    expect(window.outlook).not_to_have_text(before)
    expect(window.outlook).to_contain_text("Sent. It waits")
    assert window.complaints == []


def test_field_goes_when_its_task_is_done_and_what_was_typed_stays(site: Site) -> None:
    """Somebody ends the task in a terminal while a person writes to it: neither a dead field nor a lost text."""
    site.task("web")
    window = site.window("/m/task:web")
    window.say("will not be read")
    expect(window.outlook).to_contain_text("Sent. It ")
    window.field.fill("half a thought")
    site.daemon.call("task_done", task="web")
    expect(window.page.locator("#why-not")).to_have_text("This task is done and accepts no more messages.")
    expect(window.field).to_be_hidden()
    kept = window.page.get_by_label("Not sent. You had written:")
    expect(kept).to_have_value("half a thought")
    window.reload()
    expect(kept).to_have_value("half a thought")
    expect(kept).to_be_visible()
    expect(window.field).to_be_hidden()
    assert window.complaints == []


def test_line_about_a_sent_message_is_true_after_the_end_of_its_task(site: Site) -> None:
    """Side by side the field stays for its text; what stands below it must be what happened."""
    site.task("api")
    site.task("web", "api")
    window = site.window("/t/web")
    board = window.page.locator(".board").first
    board.get_by_role("textbox").fill("hello")
    board.get_by_role("textbox").press("Enter")
    expect(board.locator(".board-said")).to_contain_text("Sent. It ")
    site.daemon.call("task_done", task="web")
    expect(board.locator(".board-said")).to_contain_text("Not read: refused by web.")
    expect(board.locator("[id=outlook-web]")).to_contain_text("it takes no more mail")


def test_reply_quotes_what_it_answers(site: Site) -> None:
    """An answer without its question is a riddle for who reads it later, agent or person."""
    asked = site.send("which branch?", sender="anna", channel="teams")
    window = site.window()
    item = window.page.locator(f"#{asked}")
    item.hover()
    item.get_by_role("button", name="Reply to anna").click()
    expect(window.page.locator("#replying")).to_contain_text("anna: which branch?")
    expect(window.field).to_be_focused()
    expect(window.outlook).to_contain_text("Your answer goes")
    window.field.press("Escape")
    expect(window.page.locator("#replying")).to_be_hidden()
    item.hover()
    item.get_by_role("button", name="Reply to anna").click()
    window.say("the one of yesterday")
    expect(window.outlook).to_contain_text("Answered.")
    expect(window.page.locator("#replying")).to_be_hidden()
    expect(item).to_contain_text("You answered")
    expect(item).to_contain_text("the one of yesterday")


def test_where_nothing_can_be_sent_it_says_why(site: Site) -> None:
    """A missing field without a word looks like a broken page."""
    site.send("red", sender="ci-bot", channel="ci")
    window = site.window("/c/local/ci")
    expect(window.items).to_have_count(1)
    expect(window.field).to_be_hidden()
    expect(window.page.locator("#why-not")).to_contain_text("choose Reply")
    window.page.keyboard.press("r")
    expect(window.field).to_be_focused()


def test_text_that_is_too_long_stays_in_the_field_and_can_go_as_a_file(site: Site) -> None:
    """Half a text that is called sent is lost; what was written is kept, and the way out is one press of a button."""
    mailbox = site.task("shop")
    window = site.window(f"/m/{mailbox}")
    room = window.page.locator("#composer .room")
    expect(room).to_be_hidden()
    window.field.fill("😀" * 60_000)
    expect(room).to_have_text("60,000 of 64,000 characters")
    text = "😀" * 64_001
    window.field.fill(text)
    expect(room).to_have_text("64,001 of 64,000 characters: too long for a message")
    window.field.press("Enter")
    expect(window.outlook).to_contain_text("A message has at most 64,000 characters, and this has 64,001.")
    expect(window.field).to_have_value(text)
    assert site.texts(mailbox) == []
    window.page.get_by_role("button", name="Send as a file").click()
    expect(window.outlook).to_contain_text("The text is in .harken/inbox/")
    expect(window.field).to_have_value("")
    expect(room).to_be_hidden()
    (file,) = (site.folder / "shop" / ".harken" / "inbox").glob("*.txt")
    assert file.read_text() == text
    assert file.name in site.texts(mailbox)[0]
    window.goto("/t/shop")  # whoever follows several tasks at once writes there
    field = window.page.get_by_role("textbox", name="Message to shop")
    field.fill("y" * 64_001)
    expect(window.page.locator(".board-write .room")).to_contain_text("64,001 of 64,000 characters: too long")
    field.press("Enter")
    window.page.get_by_role("button", name="Send as a file").click()
    expect(window.page.locator(".board-said")).to_contain_text("The text is in .harken/inbox/")
    expect(field).to_have_value("")
    assert len(site.texts(mailbox)) == 2
    window.goto("/m/inbox")  # there is no folder for it: the hint says what else helps
    window.say("x" * 64_001)
    expect(window.outlook).to_contain_text("Send it in parts, or put it in a file and name that file.")
    expect(window.page.get_by_role("button", name="Send as a file")).to_have_count(0)
    assert site.texts() == []
    assert only_expected(window.complaints, ["413"]) == []
