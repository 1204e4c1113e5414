"""The verb `watch`: what arrives, what waits for an answer and what runs, as it happens.

On a terminal it is a live view with keys, see `live`. Into a pipe, and on a terminal that cannot be drawn on, it
is one line for each thing that happens. With --quiet it is toasts, see `quiet`. It takes nothing from anyone:
what was printed counts as seen only when you say so. It is not printed again by the next `watch`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import datetime
from time import sleep

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import json_text
from harken.cli.verbs import verb
from harken.cli.watch.keyboard import has_keys
from harken.cli.watch.news import REMARK, News, PrintedPlaces, WatchFilter
from harken.control.client import Result
from harken.errors import UserError
from harken.sources.registry import kinds

LOOK_SECONDS = 1.0
ALL_ROWS = 1_000
ONLY = "only_"


@verb("watch")
@click.option(
    "--channel",
    "named",
    multiple=True,
    shell_complete=completer("channels"),
    help="Only this channel; can be repeated.",
)
@click.option("--source", default="", help="Only messages from this source.")
@click.option("--all", "has_all", is_flag=True, help="Include messages to tasks.")
@click.option("--quiet", is_flag=True, help="Print nothing; show toasts on the desktop instead.")
@click.option("--once", is_flag=True, help="Print the current state, and exit.")
def watch(asked: Invocation, *, named: tuple[str, ...], source: str, has_all: bool, **how: bool) -> None:
    """Watch messages, open questions and runs live.

    In a terminal, press ? for the keys and q to quit.

    In a pipe, it prints one line per event; with --json, the journal event.
    """
    shortcuts = [key.removeprefix(ONLY) for key, is_on in how.items() if key.startswith(ONLY) and is_on]
    wanted = WatchFilter(channels=frozenset((*named, *shortcuts)), source=source, has_all=has_all)
    if how["quiet"] and (how["once"] or asked.as_json):
        raise UserError("--quiet prints nothing.", "Leave it out, or leave out --once and --json.")
    with asked.daemon() as starter:
        starter.ask("stats")
    # One that is stopped later is not started again by being watched.
    with asked.daemon(can_start=False) as daemon, suppress(KeyboardInterrupt):
        is_printed = not (how["once"] or how["quiet"])
        news = News(daemon, wanted, PrintedPlaces(asked.home.watched_file, wanted) if is_printed else None)
        unread = news.begin()
        if how["quiet"]:
            from harken.cli.watch.quiet import show_toasts

            show_toasts(asked.home, news)
        elif how["once"]:
            _show_once(asked, news, unread)
        else:
            _watch(asked, news, unread)


def _channel_flags() -> list[click.Parameter]:
    """Return an option for each channel that a kind of source files its messages under."""
    found = sorted({kind.channel for kind in kinds() if kind.channel})
    return [
        click.Option(
            [f"--{channel}", f"{ONLY}{channel}"],
            is_flag=True,
            help=f"Only the channel {channel}; can be combined.",
        )
        for channel in found
    ]


watch.params[1:1] = _channel_flags()


def _watch(asked: Invocation, news: News, unread: list[Result]) -> None:
    from harken.cli.watch.live import LiveView, can_draw

    if asked.as_json or not has_keys() or not can_draw(os.environ):
        _print_lines(asked, news, unread)
        return
    from harken.cli.watch.keyboard import keyboard

    with keyboard() as keys:
        LiveView(news, keys, has_colour=asked.screen.has_colour).run(unread)


def _print_lines(asked: Invocation, news: News, unread: list[Result]) -> None:
    events: list[Result] = [{"kind": "received", "message": each} for each in unread]
    known: dict[str, Result] = {}
    while True:
        known |= {each["message"]["id"]: each["message"] for each in events if each["kind"] == "received"}
        _print_events(asked, events, known)
        if not news.has_more:
            known = dict(list(known.items())[-ALL_ROWS:])
            sleep(LOOK_SECONDS)
        events = news.look()


def _print_events(asked: Invocation, events: list[Result], known: dict[str, Result]) -> None:
    from harken.cli.watch.show import event_line

    for each in events:
        if not asked.as_json:
            asked.screen.line(event_line(asked.screen, each, known))
        elif each["kind"] != REMARK:
            asked.screen.line(json_text(each))
    sys.stdout.flush()


def _show_once(asked: Invocation, news: News, unread: list[Result]) -> None:
    view = news.view
    if asked.as_json:
        asked.print_json(
            {
                "unread": view.unread,
                "messages": unread,
                "asked": list(view.asked),
                "runs": list(view.runs),
                "told": list(view.told),
                "questions": list(view.questions),
                "queued": view.queued,
                "is_paused": view.is_paused,
                "problem": view.problem,
            }
        )
        return
    from harken.cli.watch.show import banner, message_line

    for each in unread:
        asked.screen.line(message_line(asked.screen, each))
    for line in banner(asked.screen, view, None, note="", rows=ALL_ROWS, now=datetime.now().astimezone()):
        asked.screen.line(line)
