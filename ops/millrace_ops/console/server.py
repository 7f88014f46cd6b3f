"""Serves the pages over HTTP at a Unix socket: a request finds its page by its path, and a worker thread makes it.

A MillraceError becomes a page with its message and a status: 404 for what does not exist, 400 for a request that makes
no sense, 501 for what is not installed, and 502 for any other failure of the cluster or of the tables' disk. Any other
exception becomes a page with status 500. At most WORKERS pages are made at one time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

from aiohttp import web

from millrace import __version__
from millrace.errors import (
    BrokerError,
    ErrorCode,
    InvalidConfigError,
    InvalidRequestError,
    MillraceError,
    OffsetOutOfRangeError,
    SetupError,
    UnknownTopicError,
)
from millrace_broker.admin.console.own_troubles import HEADER, from_header
from millrace_broker.admin.guard import FORM_TOKEN_HEADER, ROOT
from millrace_ops.console.console import Console
from millrace_ops.console.pages.changes import (
    change_setting,
    create_topic,
    produce,
    show_create_topic,
    show_produce,
    show_setting,
)
from millrace_ops.console.pages.cluster import show_acls, show_brokers, show_transactions
from millrace_ops.console.pages.download import download_messages
from millrace_ops.console.pages.groups import preview_reset, reset, show_group, show_groups
from millrace_ops.console.pages.jobs import show_jobs
from millrace_ops.console.pages.messages import show_messages, show_record, show_tail
from millrace_ops.console.pages.tables import show_audit, show_dead_letters, show_table, show_tables
from millrace_ops.console.pages.topics import show_topic, show_topics
from millrace_ops.console.rendering import Templates, link
from millrace_ops.console.request import Answer, Asked, Download, Page, Redirect

logger = logging.getLogger(__name__)

WORKERS = 4
STATIC_TYPES: Mapping[str, str] = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MakePage = Callable[[Console, Asked], Answer]


PAGES: Mapping[str, MakePage] = {
    "": show_brokers,
    # The broker's endpoint reads what this form sends.
    "login": lambda _, asked: Page("login.html", {"is_refused": bool(asked.query.get("refused"))}),
    "topics": show_topics,
    "topic": show_topic,
    "create-topic": show_create_topic,
    "produce": show_produce,
    "setting": show_setting,
    "messages": show_messages,
    "record": show_record,
    "download": download_messages,
    "tail": show_tail,
    "groups": show_groups,
    "group": show_group,
    "reset": preview_reset,
    "transactions": show_transactions,
    "acls": show_acls,
    "tables": show_tables,
    "table": show_table,
    "dead-letters": show_dead_letters,
    "audit": show_audit,
    "jobs": show_jobs,
}
FORMS: Mapping[str, MakePage] = {
    "reset": reset,
    "create-topic": create_topic,
    "produce": produce,
    "setting": change_setting,
}
LIVE = frozenset({"", "topics", "topic", "groups", "group", "transactions", "tables", "table", "jobs"})
RELOAD_S = 10
ABSENT = (UnknownTopicError, OffsetOutOfRangeError)
ABSENT_CODES = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class ConsoleServer:
    """The HTTP server of the console's process."""

    def __init__(self, console: Console) -> None:
        self._console = console
        settings = console.settings
        self._templates = Templates(
            {
                "version": __version__,
                "has_login": settings.has_login,
                "may_change": settings.may_change,
                "has_tables": bool(settings.warehouse),
            }
        )
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="console-page")
        self._static = {
            one.name: one.read_bytes() for one in files("millrace_ops.console").joinpath("static").iterdir()
        }

    def application(self) -> web.Application:
        """Returns the aiohttp application with the console's routes."""
        application = web.Application(client_max_size=1 << 20)
        application.router.add_get(ROOT, self._to_root)
        application.router.add_get(f"{ROOT}/static/{{name}}", self._answer_static)
        application.router.add_route("*", f"{ROOT}/{{page:.*}}", self._answer)
        return application

    async def _to_root(self, _: web.Request) -> web.Response:
        return web.Response(status=303, headers={"Location": f"{ROOT}/"})

    async def _answer_static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        content = self._static.get(name)
        if content is None:
            raise web.HTTPNotFound
        return web.Response(body=content, content_type=STATIC_TYPES[name.rpartition(".")[2]], charset="utf-8")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["page"]
        form = {key: value for key, value in (await request.post()).items() if isinstance(value, str)}
        own_troubles = from_header(request.headers.get(HEADER))
        asked = Asked(name, dict(request.query), form, request.headers.get(FORM_TOKEN_HEADER, ""), own_troubles)
        make = (FORMS if request.method == "POST" else PAGES).get(name)
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(self._workers, self._made, make, asked)
        return await self._sent(request, made) if isinstance(made, Download) else made

    async def _sent(self, request: web.Request, download: Download) -> web.StreamResponse:
        """Sends a file part by part; each is made on a worker thread once the one before it was taken."""
        disposition = f'attachment; filename="{download.name}"'
        response = web.StreamResponse(headers={"Content-Disposition": disposition})
        response.content_type = "application/x-ndjson"
        loop = asyncio.get_running_loop()
        try:
            await response.prepare(request)
            while request.method != "HEAD" and (
                part := await loop.run_in_executor(self._workers, next, download.parts, None)
            ):
                await response.write(part)
            await response.write_eof()
        except ConnectionError:
            logger.info("the browser went away before the end of %s", download.name)
        finally:  # gives the client of the cluster back
            await loop.run_in_executor(self._workers, _closed, download.parts)
        return response

    def _made(self, make: MakePage | None, asked: Asked) -> web.Response | Download:
        try:
            if make is None:
                absent = {"title": "Not found", "sentence": f"there is no page {asked.path}"}
                return self._response(Page("error.html", absent, 404), asked)
            answer = make(self._console, asked)
            return answer if isinstance(answer, Download) else self._response(answer, asked)
        except MillraceError as error:
            return self._response(_error_page(error), asked)
        except Exception as error:  # the fault of one page; the server goes on
            logger.exception("the page %s failed", asked.path)
            return self._response(Page("error.html", {"title": "The page failed", "sentence": repr(error)}, 500), asked)

    def _response(self, answer: Page | Redirect, asked: Asked) -> web.Response:
        if isinstance(answer, Redirect):
            return web.Response(status=303, headers={"Location": f"{ROOT}/{answer.to}"})
        is_live = asked.path in LIVE and answer.status == 200
        is_reloaded = is_live and bool(asked.query.get("reload"))
        refresh_s = RELOAD_S if is_reloaded else answer.refresh_s
        headers = {} if refresh_s is None else {"Refresh": str(refresh_s)}
        reloading = {
            "is_live": is_live,
            "reload_s": RELOAD_S,
            "is_reloaded": is_reloaded,
            "reload_link": link(asked.query, reload="" if is_reloaded else 1),
        }
        text = self._templates.render(answer, {**reloading, "form_token": asked.form_token})
        return web.Response(text=text, status=answer.status, content_type="text/html", headers=headers)


def _closed(parts: Iterator[bytes]) -> None:
    if isinstance(parts, Generator):
        parts.close()


def _error_page(error: MillraceError) -> Page:
    is_absent = isinstance(error, ABSENT) or (isinstance(error, BrokerError) and error.broker_code in ABSENT_CODES)
    if is_absent:
        title, status = "Not found", 404
    elif isinstance(error, InvalidRequestError | InvalidConfigError):
        title, status = "That is not possible", 400
    elif isinstance(error, SetupError):
        title, status = "Something is not set up", 501
    else:
        title, status = "That did not work", 502
    return Page("error.html", {"title": title, "sentence": str(error)}, status)
