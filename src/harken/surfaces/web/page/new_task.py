"""Making a task in the page: a form, and the verb that makes the task, its worktree and what its agent needs there.

A form that is sent twice makes one task: it carries a key, by which the answer to the first is found again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError
from harken.hosts.registry import host_title, hosts
from harken.model import fresh_id
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.page.forms import form_of, once_key
from harken.surfaces.web.page.links import task_href
from harken.surfaces.web.page.rendering import OK, ActionNote, PageRenderer, answered
from harken.verbs.tasks import MadeTask, TaskMake, make_task

HERE: Final = "/tasks"
REMEMBERED_FORMS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForm:
    """What a person filled in."""

    title: str = ""
    folder: str = ""
    agent: str = ""
    prompt: str = ""
    branch: str = ""
    start: str = ""
    is_here: bool = False
    is_trusted: bool = False

    @classmethod
    def of(cls, form: Mapping[str, str]) -> TaskForm:
        """Return what a form sent."""
        return cls(
            title=form.get("title", "").strip(),
            folder=form.get("folder", "").strip(),
            agent=form.get("agent", ""),
            prompt=form.get("prompt", "").replace("\r\n", "\n"),
            branch=form.get("branch", "").strip(),
            start=form.get("start", "").strip(),
            is_here=bool(form.get("is_here")),
            is_trusted=bool(form.get("is_trusted")),
        )

    @property
    def arguments(self) -> TaskMake:
        """What the verb is asked."""
        return TaskMake(
            title=self.title,
            folder=self.folder,
            agent=self.agent,
            prompt=self.prompt,
            branch=self.branch,
            start=self.start,
            is_here=self.is_here,
            is_trusted=self.is_trusted,
        )


class NewTaskPages:
    """The form for a task, and what comes of it."""

    def __init__(self, front: WebContext, pages: PageRenderer) -> None:
        self._front = front
        self._pages = pages
        self._making = anyio.Lock()
        self._made: OrderedDict[str, MadeTask] = OrderedDict()

    async def ask(self, request: Request) -> Response:
        """Answer with an empty form, or one with a folder in it."""
        return await self._form(TaskForm(folder=request.query_params.get("folder", "")))

    async def make(self, request: Request) -> Response:
        """Make the task, and say where it is and how its agent is started."""
        fields = await form_of(request)
        form = TaskForm.of(fields)
        key = once_key(fields.get("key", ""), repr(form))
        async with self._making:
            made = self._made.get(key)
            try:
                made = made or await make_task(self._front.desk(), form.arguments)
            except HarkenError as exc:
                return await self._form(form, ActionNote.of(exc), exc.http_status)
            self._remember(key, made)
        task = made.task.task
        return await self._pages.page(
            "panels/task_made.html.j2",
            here=HERE,
            title=task.title,
            task=task,
            href=task_href(task.id),
            agent=host_title(task.agent) if task.agent else "",
            files=made.seeded.names(made.folder),
            notes=made.notes,
        )

    async def _form(self, form: TaskForm, note: ActionNote | None = None, status: int = OK) -> Response:
        known = [each.task.repo or each.task.dir for each in await self._front.tasks.list(with_done=True)]
        return await self._pages.page(
            "panels/new_task.html.j2",
            here=HERE,
            title="New task",
            status=status,
            told=note,
            form=form,
            folders=sorted(set(known)),
            hosts={name: host.title for name, host in hosts().items()},
            key=fresh_id("", 20),
        )

    def _remember(self, key: str, made: MadeTask) -> None:
        if key:
            self._made[key] = made
        while len(self._made) > REMEMBERED_FORMS:
            self._made.popitem(last=False)


def new_task_routes(front: WebContext) -> list[Route]:
    """Return the routes of the form for a task."""
    pages = PageRenderer(front)
    asked = NewTaskPages(front, pages)
    return [
        Route("/tasks/new", answered(pages, asked.ask), methods=["GET"]),
        Route("/do/task", answered(pages, asked.make), methods=["POST"]),
    ]
