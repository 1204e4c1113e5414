"""The addresses of rules, actions and runs. What is behind them is in `reaction_looks.py` and `reaction_deeds.py`."""

from __future__ import annotations

from starlette.routing import Route

from harken.surfaces.web.front import Front
from harken.surfaces.web.page.reaction_deeds import ReactionDeeds
from harken.surfaces.web.page.reaction_looks import ReactionLooks
from harken.surfaces.web.page.rendering import Pages
from harken.surfaces.web.page.routes import Handler, answered


def reaction_routes(front: Front) -> list[Route]:
    """Return the routes of rules, actions and runs."""
    pages = Pages(front)
    look = ReactionLooks(front, pages)
    do = ReactionDeeds(front, look)
    shown: tuple[tuple[str, Handler], ...] = (
        ("/rules", look.rules),
        ("/runs", look.runs),
        ("/runs/{run}", look.run),
        ("/message/{ref}/rules", look.message),
        ("/message/{ref}/run", look.run_now),
        ("/part/output/{run}", look.output),
        ("/part/reactions/{ref}", look.reactions),
        ("/part/asks", look.asks),
    )
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/answer", do.answer),
        ("/do/pause", do.pause),
        ("/do/resume", do.resume),
        ("/do/reload", do.reload),
        ("/do/abort", do.abort),
        ("/do/run", do.run),
    )
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
    ]
