"""Saying, taking, looking and answering, in words and in JSON."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from harken.cli.messages import MAX_SHOWN, MAX_TAKEN
from harken.cli.output import MAX_PIPED
from harken.config.home import Home
from harken.control.client import DaemonClient
from harken.errors import NotFound
from harken.inbox.inbox import MAX_OFFER, MAX_PAGE
from tests.cli.rig import SECONDS, Json, Rig
from tests.loss.rig import until

RECORD = {
    "id", "mailbox", "seq", "received_at", "source", "channel", "chat_id", "from", "sender_id", "trust", "attention",
    "priority", "kind", "thread", "refers_to", "ts", "content_text_sanitized", "meta", "consumed_by",
}  # fmt: skip


def _send(rig: Rig, text: str, *words: str) -> Json:
    return rig.json("send", text, *words)


def test_send_says_id_mailbox_number_and_what_will_happen(rig: Rig) -> None:
    """The person who sends must know at once whether anybody will get it."""
    words = rig.ok("send", "the", "build", "is", "red", "--from", "ci-bot", "--channel", "ci").split()
    assert words[0].startswith("m-")
    assert words[1] == "inbox"
    assert words[2].startswith("#")
    assert " ".join(words[3:]) == "waits for the next session: none is connected now"
    listed = rig.ok("list", "--channel", "ci", "--limit", "1")
    assert listed.startswith(f"{words[0]} {words[2]} [ci ")
    assert listed.endswith("] ci-bot: the build is red\n")


def test_text_that_is_too_long_is_refused_as_argument_and_from_a_pipe(rig: Rig) -> None:
    """What exits with 0 is on disk in full; half a text that is called sent is lost."""
    before = rig.ask("list", limit=1)["messages"]
    for words, stdin in ((("send", "ß" * 64_001), ""), (("send", "-"), "ß" * 64_001), (("send",), "ß" * 64_001)):
        refused = rig.run(*words, stdin=stdin)
        assert (refused.code, refused.out) == (2, "")
        assert "at most 64,000 characters, and this has 64,001" in refused.err
        assert "Send it in parts, or put it in a file and name that file." in refused.err
    error = json.loads(rig.run("send", "--json", "-", stdin="x" * 100_000).err)["error"]
    assert (error["code"], error["length"], error["limit"]) == ("too_long", 100_000, 64_000)
    assert rig.ask("list", limit=1)["messages"] == before
    sent = rig.json("send", "-", stdin="ß" * 64_000)
    found = rig.json("read", sent["id"])["message"]
    assert found["content_text_sanitized"] == "ß" * 64_000


def test_long_text_to_a_task_goes_as_a_file(rig: Rig, tmp_path: Path) -> None:
    """The hint is a command that works: the agent of the task finds the whole text in its folder."""
    folder = tmp_path / "long"
    folder.mkdir()
    rig.ask("task_new", title="long", id="long", dir=str(folder))
    refused = rig.run("send", "--to", "task:long", "-", stdin="x" * 100_000)
    assert (refused.code, "--as-file" in refused.err) == (2, True)
    said = rig.run("send", "--to", "task:long", "--as-file", "-", stdin="x" * 100_000)
    assert (said.code, "The text is in the task's folder: .harken/inbox/" in said.err) == (0, True)
    sent = rig.json("send-to-task", "long", "--as-file", "-", stdin="y" * 100_000)
    assert (folder / sent["file"]).read_text() == "y" * 100_000
    assert rig.run("send", "--as-file", "to nobody's folder").code == 2


def test_send_in_json_is_the_documented_result(rig: Rig) -> None:
    """Scripts rely on these names."""
    sent = _send(rig, "hello")
    assert set(sent) == {"id", "mailbox", "seq", "state", "forecast"}
    assert sent["state"] == "queued"
    assert set(sent["forecast"]) == {"outlook", "sentence"}


def test_send_reads_a_pipe_when_there_is_no_text_or_a_dash(rig: Rig) -> None:
    """Output of other programs is sent by piping it; line breaks are kept."""
    for words in (("send",), ("send", "-")):
        sent = rig.json(*words, stdin="first\nsecond\n")
        read = rig.json("read", sent["id"])
        assert read["message"]["content_text_sanitized"] == "first\nsecond"


def test_send_with_an_id_stores_once(rig: Rig) -> None:
    """A script may run again after a failure without sending twice."""
    first = _send(rig, "once", "--id", "build-77")
    again = _send(rig, "once", "--id", "build-77")
    assert (again["id"], again["state"]) == (first["id"], "known")


def test_send_goes_to_the_mailbox_and_conversation_that_are_named(rig: Rig) -> None:
    """Options are passed on, none under another's name."""
    sent = _send(
        rig,
        "x",
        "--to",
        "project:shop",
        "--priority",
        "high",
        "--conversation",
        "c-9",
        "--from",
        "amy",
        "--channel",
        "ops",
    )
    message = rig.json("read", sent["id"])["message"]
    wanted = {"mailbox": "project:shop", "priority": "high", "chat_id": "c-9", "from": "amy", "channel": "ops"}
    assert {name: message[name] for name in wanted} == wanted


@pytest.mark.parametrize("words", [("send", "caf\udce9"), ("read", "m-\udcff"), ("list", "--channel", "\udcff")])
def test_words_that_are_not_utf8_are_refused_in_words(rig: Rig, words: tuple[str, ...]) -> None:
    """A shell with another encoding hands over bytes; which part of a protocol they break is of no use to a person."""
    refused = rig.run(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "A word of this command is not UTF-8." in refused.err


def test_nothing_to_send_is_the_callers_mistake(rig: Rig) -> None:
    """An empty message is refused before anything is stored."""
    done = rig.run("send")
    assert (done.code, done.out) == (2, "")
    assert done.err == 'harken: A message needs a text.\n  Say something: harken send "the build is red"\n'


def test_list_narrows_and_pages(rig: Rig) -> None:
    """The newest is last, and `--before` goes back in time."""
    seqs = [_send(rig, f"n{n}", "--channel", "paging", "--from", "pager")["seq"] for n in range(3)]
    newest = rig.json("list", "--channel", "paging", "--limit", "2")["messages"]
    assert [item["seq"] for item in newest] == seqs[1:]
    assert set(newest[0]) == RECORD
    older = rig.json("list", "--sender", "pager", "--mailbox", "inbox", "--before", str(seqs[1]))["messages"]
    assert [item["seq"] for item in older] == seqs[:1]


def test_a_list_in_a_pipe_shows_where_lines_end_and_cuts_what_is_very_long(rig: Rig) -> None:
    """Whoever pipes a list wants lines; `--json` has the whole text."""
    long = _send(rig, "long " * 10_000, "--channel", "piped")
    _send(rig, "# Title\n\n- one\n- two", "--channel", "piped")
    first, second = rig.ok("list", "--channel", "piped").splitlines()
    assert (len(first) <= MAX_PIPED, first[-1]) == (True, "…")
    assert second.endswith(": # Title ⏎ - one ⏎ - two")
    assert max(map(len, rig.ok("journal").splitlines())) <= MAX_PIPED
    assert len(rig.json("read", long["id"])["message"]["content_text_sanitized"]) > 40_000


def test_a_message_is_named_as_the_list_names_it(rig: Rig) -> None:
    """What is printed can be pasted: in another mailbox than the inbox there is a blank before the number."""
    sent = _send(rig, "for the shop", "--to", "project:named")
    assert f"{sent['id']} project:named #1 " in rig.ok("list", "--mailbox", "project:named")
    for ref in ("project:named #1", "project:named#1"):
        assert rig.json("read", ref)["message"]["id"] == sent["id"]


def test_an_empty_list_says_so_on_stderr_only(rig: Rig) -> None:
    """A pipe gets nothing, a person a sentence."""
    done = rig.run("list", "--channel", "no-such")
    assert (done.code, done.out, done.err) == (0, "", "No messages.\n")
    assert rig.json("list", "--channel", "no-such") == {"messages": [], "scheduled": []}
    missing = rig.run("list", "--mailbox", "nosuch")
    assert (missing.code, missing.out) == (NotFound.exit_code, "")
    assert "There is no mailbox 'nosuch'." in missing.err


def test_more_than_one_answer_carries_is_not_passed_over_in_silence(rig: Rig) -> None:
    """Whoever asks for more than they get takes what they got for everything."""
    assert (MAX_SHOWN, MAX_TAKEN) == (MAX_PAGE, MAX_OFFER)
    done = rig.run("list", "--limit", str(MAX_SHOWN + 1))
    assert done.err.endswith(f"At most {MAX_SHOWN} are shown at once. Older ones: --before SEQ\n")


def test_more_than_one_pull_takes_is_not_passed_over_in_silence(rig: Rig) -> None:
    """The others wait for the next one, and a script that pulls once would leave them."""
    with DaemonClient(Home(rig.home)) as daemon:
        for number in range(MAX_TAKEN + 2):
            daemon.ask("send", text=f"n{number}", sender="many")
    words = ("pull", "--consumer", "taker", "--limit", str(MAX_TAKEN + 1))
    assert f"At most {MAX_TAKEN} are taken at once. For more, run the command again.\n" in rig.run(*words).err
    assert "At most" not in rig.run(*words).err, "the rest is fewer than that"


def test_read_shows_the_message_its_ledger_and_replies(rig: Rig) -> None:
    """What became of a message can always be seen."""
    sent = _send(rig, "please look\nat this", "--from", "amy", "--channel", "desk")
    rig.ok("pull", "--consumer", "reader", "--channel", "desk")
    answer = rig.json("reply", sent["id"], "I", "did")
    assert set(answer) == {"reply_id", "message_id", "state"}
    lines = rig.ok("read", sent["id"]).splitlines()
    assert lines[0].endswith("] amy: please look")
    assert lines[1] == "    at this"
    assert "from amy · trust known" in lines[2]
    ledger = next(line for line in lines if line.startswith("  reader "))
    assert "seen" in ledger
    assert "by pull" in ledger
    assert "(shown)" in ledger
    assert any(line.startswith(f"Reply {answer['reply_id']} ") for line in lines)
    assert lines[-1] == "    I did"
    details = rig.json("read", sent["id"])
    assert set(details) == {"message", "ledger", "not_given", "replies", "question", "rules", "scheduled"}


def test_ledger_line_of_what_was_never_offered_has_its_time_and_reason_only(rig: Rig, tmp_path: Path) -> None:
    """Whoever reads "offered by" looks for a surface: here there was none."""
    rig.ok("task", "new", "Short one", "--id", "short", "--dir", str(tmp_path))
    sent = rig.json("send-to-task", "short", "too late")
    rig.ok("task", "done", "short")
    lines = rig.ok("read", sent["id"]).splitlines()
    (line,) = [line for line in lines if line.startswith("  task:short  ")]
    assert re.fullmatch(r"  task:short  refused  [0-9:]+, the task is done", line), line


def test_beginning_of_several_ids_says_how_many_there_are(rig: Rig) -> None:
    """One more character of the id is all that is needed, and nothing is missing."""
    beginnings: list[str] = []
    while len(set(beginnings)) == len(beginnings):
        beginnings.append(rig.ask("send", text="one of many")["id"][:3])
    beginning = beginnings[-1]
    everything = rig.ask("list", limit=1000)["messages"]
    count = len([each for each in everything if each["id"].startswith(beginning)])
    done = rig.run("read", beginning)
    assert done.code == 2
    assert done.err == f"harken: {count} message ids begin with '{beginning}'.\n  Give more of the id.\n"


def test_next_piece_is_asked_for_with_the_same_length(rig: Rig) -> None:
    """The command that is named continues what the person began."""
    sent = _send(rig, "abcdefghijklmnop")
    done = rig.run("read", sent["id"], "--offset", "4", "--limit", "5")
    assert done.err == f"Up to character 9 of 16. The next: harken read {sent['id']} --offset 9 --limit 5\n"
    done = rig.run("read", sent["id"], "--limit", "5", "--home", str(rig.home))
    assert f"harken --home {rig.home} read {sent['id']} --offset 5 --limit 5" in done.err


def test_an_unknown_message_is_not_found(rig: Rig) -> None:
    """Exit codes tell scripts what to do next."""
    done = rig.run("read", "m-nothing")
    assert done.code == 3
    assert done.err.startswith("harken: There is no message")
    assert done.err.count("\n") == 2
    done = rig.run("read", "m-nothing", "--json")
    assert (done.code, done.out) == (3, "")
    assert '"code": "not_found"' in done.err


def test_pull_takes_and_peek_does_not(rig: Rig) -> None:
    """What was printed is seen; what was looked at still waits."""
    _send(rig, "take me", "--channel", "takes", "--from", "amy")
    rig.ok("pull", "--consumer", "taker", "--channel", "nothing-there")
    peeked = rig.json("pull", "--consumer", "taker", "--channel", "takes", "--peek")
    assert [item["content_text_sanitized"] for item in peeked["messages"]] == ["take me"]
    pulled = rig.json("pull", "--consumer", "taker", "--channel", "takes")
    assert set(pulled) == {"messages", "unread_remaining"}
    assert set(pulled["messages"][0]) == RECORD | {"delivery_id", "repeat", "answered_by"}
    assert pulled["messages"][0]["repeat"] is False
    done = rig.run("pull", "--consumer", "taker", "--channel", "takes")
    assert (done.code, done.out, done.err) == (0, "", "No unread messages.\n")


def test_what_could_not_be_printed_is_offered_again_as_a_repeat(rig: Rig) -> None:
    """A message counts as seen when it was printed, not when it was asked for."""
    _send(rig, "precious", "--channel", "full", "--from", "amy")
    words = ("pull", "--consumer", "unlucky", "--channel", "full")
    with Path("/dev/full").open("wb") as full:
        lost = rig.run(*words, stdout=full)
    assert lost.code == 1
    assert lost.err == "harken: The output cannot be written: No space left on device.\n"
    assert "] (repeat) amy: precious" in rig.ok(*words)


def test_remark_comes_after_what_it_is_about(rig: Rig) -> None:
    """A log, or a pager, gets both into one file: there "1 more waits" means after this one."""
    for text in ("first", "second"):
        _send(rig, text, "--channel", "order", "--from", "amy")
    with TemporaryFile() as log:
        done = rig.run("pull", "--consumer", "orderly", "--channel", "order", "--limit", "1", stdout=log, stderr=log)
        log.seek(0)
        printed = log.read().decode()
    assert done.code == 0
    assert printed.index("first") < printed.index("more wait")


def test_a_reader_that_goes_away_is_no_error_and_takes_nothing(rig: Rig) -> None:
    """`harken pull | head` ends quietly, like any program that lost its reader."""
    _send(rig, "unread", "--channel", "pipe", "--from", "amy")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = rig.run("pull", "--consumer", "piper", "--channel", "pipe", stdout=pipe)
    assert (done.code, done.err) == (141, "")
    assert "(repeat)" in rig.ok("pull", "--consumer", "piper", "--channel", "pipe")


def _is_enrolled(status: Json) -> bool:
    """Whether the daemon has begun to serve the one who waits: that is when its consumer appears."""
    return any(place["consumer"] == "waiter" for place in status["consumers"])


def test_wait_gets_a_message_that_comes_later(fresh: Rig) -> None:
    """That is what waiting is for."""
    fresh.ok("up")
    with fresh.begin("wait", "--consumer", "waiter") as waiting:
        fresh.until(_is_enrolled)
        sent = _send(fresh, "at last", "--channel", "late", "--from", "amy")
        out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, err) == (0, b"")
    assert out.startswith(f"{sent['id']} #1 [late ".encode())
    assert out.endswith(b"] amy: at last\n")
    (line,) = [line for line in fresh.json("read", sent["id"])["ledger"] if line["consumer"] == "waiter"]
    assert (line["state"], line["evidence"]) == ("seen", "shown")


def test_wait_ends_well_when_nothing_comes(rig: Rig) -> None:
    """Nothing within the time is a normal outcome: exit code 0, a sentence for people, an empty list for programs."""
    rig.run("pull", "--consumer", "bored", "--limit", "100")
    done = rig.run("wait", "--consumer", "bored", "--timeout", "0.1")
    assert (done.code, done.out, done.err) == (0, "", "Nothing arrived within 0.1 seconds.\n")
    assert rig.json("wait", "--consumer", "bored", "--timeout", "0.1") == {"messages": [], "unread_remaining": 0}
    assert rig.run("wait", "--consumer", "bored", "--timeout", "1s").err == "Nothing arrived within 1 second.\n"


def test_what_you_write_is_read_for_you_and_wait_gives_answers(fresh: Rig) -> None:
    """Who asks and waits wants the answer, and not the question again; for agents it is new all the same."""
    own = _send(fresh, "is anybody there?")
    assert fresh.json("status")["consumers"][0] | {"left_out": None} == {
        "consumer": "watch",
        "mailbox": "inbox",
        "cursor": 1,
        "head": 1,
        "unread": 0,
        "left_out": None,
    }
    _send(fresh, "yes, I am", "--from", "amy")
    assert [each["from"] for each in fresh.json("wait", "--timeout", "0")["messages"]] == ["amy"]
    assert fresh.json("pull", "--consumer", "codex")["messages"][0]["id"] == own["id"]
    (line,) = [line for line in fresh.json("read", own["id"])["ledger"] if line["consumer"] == "watch"]
    assert (line["state"], line["evidence"]) == ("seen", "own")


def test_ctrl_c_during_wait_takes_nothing(fresh: Rig) -> None:
    """Whoever gives up waiting still finds the next message unread, and not marked as a repeat."""
    fresh.ok("up")
    with fresh.begin("wait", "--consumer", "waiter") as waiting:
        fresh.until(_is_enrolled)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out, err.strip()) == (130, b"", b"")
    _send(fresh, "still here", "--from", "amy")
    found = fresh.json("pull", "--consumer", "waiter")["messages"]
    assert [(item["content_text_sanitized"], item["repeat"]) for item in found] == [("still here", False)]


def test_ack_marks_as_seen_by_id_and_number(rig: Rig) -> None:
    """A person may deal with a message elsewhere."""
    first, second = (_send(rig, text, "--channel", "acks", "--from", "amy") for text in ("one", "two"))
    marked = rig.json("ack", first["id"], f"#{second['seq']}", "--consumer", "acker")
    assert marked == {"acknowledged": [first["id"], second["id"]]}
    assert rig.run("pull", "--consumer", "acker", "--channel", "acks").out == ""
    third = _send(rig, "three", "--channel", "acks", "--from", "amy")
    assert rig.ok("ack", third["id"]) == f"{third['id']}  seen by you\n"
    assert rig.run("ack", third["id"]).err == "Everything was already seen.\n"


def test_what_you_answer_is_listed_as_yours(rig: Rig) -> None:
    """On screens the person is *you*; `owner` is what the store calls them."""
    asked = _send(rig, "which branch", "--from", "alice", "--channel", "branches")
    rig.ok("reply", asked["id"], "the main one")
    until(lambda: "the main one" in rig.ok("list", "--channel", "branches"), "the answer has left", SECONDS)
    (answer,) = rig.json("list", "--channel", "branches", "--mailbox", "replies")["messages"]
    assert (answer["from"], answer["sender_id"]) == ("you", "owner")
    shown = rig.ok("read", answer["id"])
    assert "★ you: the main one" in shown
    assert "from you" in shown
    assert "owner" not in shown


def test_reply_says_what_became_of_it(rig: Rig) -> None:
    """A reply is on its way, not necessarily there."""
    sent = _send(rig, "question", "--channel", "talk", "--from", "amy")
    words = rig.ok("reply", sent["id"], "-", stdin="an answer\n").split()
    assert words[0].startswith("r-")
    assert words[1:3] == ["answers", sent["id"]]


def test_search_finds_all_words_newest_first(rig: Rig) -> None:
    """What was sent a moment ago is found too."""
    ids = [_send(rig, f"zebra crossing {n}", "--from", "amy")["id"] for n in range(2)]
    _send(rig, "zebra alone", "--from", "amy")
    found = rig.json("search", "zebra", "crossing")["messages"]
    assert [item["id"] for item in found] == ids[::-1]
    assert rig.ok("search", "zebra", "crossing").startswith(ids[1])
    assert rig.run("search", "xylophone").err == "No message contains all of that.\n"


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_a_wait_needs_a_time_that_ends(rig: Rig, seconds: str) -> None:
    """With a number that compares with nothing, the loop would ask the daemon without end."""
    done = rig.run("wait", "--consumer", "patient", "--timeout", seconds)
    assert (done.code, done.out) == (2, "")
    assert "--timeout" in done.err
