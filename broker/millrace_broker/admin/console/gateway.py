"""Lets requests for the console through to its process, which it starts, and gives the answers back.

    GET  /console/static/…   styles and scripts, for all
    GET  /console/login      the form that asks for the token; POST gives a session for it
    POST /console/logout     ends the session
    GET  /console/…          a page, for who is logged in
    POST /console/…          a change, where the console is `full`

At most MAX_AT_ONCE requests are with the process at one time, and MAX_WAITING wait for it; further ones are answered
503. A page may not load anything from elsewhere, run a script that stands in it, or be shown inside another page.

The process is started when it is needed, again where it has ended, and never twice:

    stdin   one line of JSON, the settings; then nothing, and its end is the end of the process
    stdout  one line once it serves HTTP at its socket

The socket lies in a folder that only the broker's user can enter. The pipe closes when the broker dies, however that
happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import yarl
from aiohttp import web

from millrace.errors import SetupError
from millrace_broker.admin.console.own_troubles import HEADER, to_header
from millrace_broker.admin.guard import FORM_TOKEN_HEADER, ROOT, ConsoleAccess, is_own_origin

PROGRAM = "millrace_ops.console"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0


class ConsoleProcess:
    """The process that makes the console's pages, and the directory of the Unix socket at which it serves them."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def socket(self) -> str:
        """Returns the path of the process's socket; starts the process if none runs. Raises SetupError if it fails."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
            return self._path()

    async def stop(self) -> None:
        """Ends the process, and removes the directory of its socket."""
        async with self._starting:
            if self._process is not None:
                await _end(self._process)
            if self._folder is not None:
                self._folder.cleanup()

    def _path(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="millrace-console-")  # of mode 0700
        os.makedirs(self._folder.name, mode=0o700, exist_ok=True)  # a process that has ended has removed it
        return os.path.join(self._folder.name, "socket")

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**self._settings, "socket": self._path()}).encode() + b"\n")
        try:
            ready = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
        except TimeoutError:
            ready = b""
        if not ready:
            await _end(process)
            raise SetupError("the console's process does not start; the broker's log says why")
        self._process = process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


logger = logging.getLogger(__name__)

COOKIE = "millrace_console"
BROKERS, LOGIN, LOGOUT = f"{ROOT}/", f"{ROOT}/login", f"{ROOT}/logout"
STATIC = re.compile(rf"{ROOT}/static/[a-z]+\.[a-z]+")
MAX_AT_ONCE = 4
MAX_WAITING = 32
MAX_FORM_BYTES = 1 << 20
ANSWER_TIMEOUT_S = 120.0
PASSED_ON = ("Content-Type", "Location", "Refresh", "Content-Disposition")
PASSED_AT_ONCE_BYTES = 64 << 10
SECURING: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ConsoleGateway:
    """The part of the admin endpoint that serves the console, by passing requests on to the console's process.

    It is made on the event loop. `troubles` returns what is wrong with this broker (`own_troubles`), and is called on a
    worker thread, as a disk may be slow.
    """

    def __init__(
        self, process: ConsoleProcess, access: ConsoleAccess, troubles: Callable[[], Sequence[str]], *, may_change: bool
    ) -> None:
        self._process = process
        self._access = access
        self._troubles = troubles
        self._may_change = may_change
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Returns the response to a request below /console, with headers that protect its page from other sites."""
        answer = await self._answered(request)
        if answer.prepared:  # a file, which is sent already
            return answer
        answer.headers.update(SECURING)
        is_static = _is_static(request) and answer.status == 200
        answer.headers["Cache-Control"] = "private, max-age=3600" if is_static else "no-store"
        return answer

    async def stop(self) -> None:
        """Closes the connections to the console's process, and ends it."""
        while self._sessions:  # a request that is still answered may open another one meanwhile
            _, session = self._sessions.popitem()
            await session.close()
        await self._process.stop()

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if _path(request) == LOGIN:
            return await self._login(request)
        session = self._access.session(
            request.cookies.get(_cookie(request), ""), request.headers.get("Authorization", "")
        )
        if session is None:
            return await self._asked(request, "") if _is_static(request) else _redirect(LOGIN)
        if request.method == "POST":
            return await self._posted(request, session)
        return await self._asked(request, session)

    def _refused(self, request: web.Request) -> web.Response | None:
        if not self._access.serves_host(request.host):
            return _said(403, f"{request.host} is not this machine: without a token the console answers to it alone")
        length = request.content_length
        if request.method == "POST" and (length is None or length > MAX_FORM_BYTES):
            return _said(413, "the form is too large, or does not say how large it is")
        return None

    async def _login(self, request: web.Request) -> web.StreamResponse:
        if not self._access.asks_for_login:
            return _redirect(BROKERS)
        if request.method != "POST":
            return await self._asked(request, "")
        if not is_own_origin(request.headers.get("Origin"), request.host):
            return _said(403, "the form was sent from another site")
        session = self._access.new_session(str((await request.post()).get("token", "")).strip())
        if session is None:
            return _redirect(f"{LOGIN}?refused=1")
        answer = _redirect(BROKERS)
        answer.set_cookie(_cookie(request), session, path=ROOT, httponly=True, samesite="Strict", secure=request.secure)
        return answer

    async def _posted(self, request: web.Request, session: str) -> web.StreamResponse:
        form = await request.post()
        if not self._access.may_post(session, form, request.headers.get("Origin"), request.host):
            return _said(403, "the form is not of this console's making, or too old: load its page again")
        if _path(request) == LOGOUT:
            answer = _redirect(LOGIN)
            answer.del_cookie(_cookie(request), path=ROOT)
            return answer
        if not self._may_change:
            return _said(403, "the console is read-only: admin.console=full lets it change something")
        return await self._asked(request, session)

    async def _asked(self, request: web.Request, session: str) -> web.StreamResponse:
        """Returns the response of the console's process, or 503 if there is none; `session` is "" before a login."""
        if self._waiting >= MAX_WAITING:
            return _said(503, "too many pages are asked for at one time; try again in a moment")
        self._waiting += 1
        try:
            async with self._turns:
                return await self._passed_on(request, session)
        except SetupError as error:
            return _said(503, str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.warning("the console's process does not answer %s: %s", request.path, error or type(error).__name__)
            return _said(503, "the console's process does not answer; it is started again with the next page")
        finally:
            self._waiting -= 1

    async def _passed_on(self, request: web.Request, session: str) -> web.StreamResponse:
        client = self._client(await self._process.socket())
        headers = {FORM_TOKEN_HEADER: self._access.form_token(session) if session else ""}
        if "Content-Type" in request.headers:
            headers["Content-Type"] = request.headers["Content-Type"]
        if _path(request) == BROKERS:
            headers[HEADER] = to_header(await asyncio.to_thread(self._troubles))
        url = yarl.URL(f"http://console{request.raw_path}", encoded=True)
        body = await request.read()
        async with client.request(request.method, url, data=body, headers=headers, allow_redirects=False) as answer:
            passed_on = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
            if "Content-Disposition" in passed_on:
                return await _sent_on(request, answer, passed_on)
            return web.Response(body=await answer.read(), status=answer.status, headers=passed_on)

    def _client(self, socket: str) -> aiohttp.ClientSession:
        if socket not in self._sessions:
            timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
            self._sessions[socket] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(socket), timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._sessions[socket]


async def _sent_on(
    request: web.Request, answer: aiohttp.ClientResponse, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends a file on as it comes, so that the broker never has all of it; where it breaks off, so does the response.

    A response that has begun can't become another one, so the connection is closed in the middle of it.
    """
    response = web.StreamResponse(status=answer.status, headers={**headers, **SECURING, "Cache-Control": "no-store"})
    try:
        await response.prepare(request)
        async for part in answer.content.iter_chunked(PASSED_AT_ONCE_BYTES):
            await response.write(part)
        await response.write_eof()
    except ConnectionResetError:
        logger.info("the browser went away before the end of a file")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        logger.warning("a file of the console broke off: %s", error or type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


def _path(request: web.Request) -> str:
    """Returns a request's path undecoded, as the console's process gets it, so that both mean the same page."""
    return request.raw_path.partition("?")[0]


def _cookie(request: web.Request) -> str:
    """Returns the cookie's name, with the port: browsers send cookies to all ports of a host, so to other brokers."""
    return f"{COOKIE}_{request.url.port}"


def _is_static(request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and STATIC.fullmatch(_path(request)) is not None


def _said(status: int, sentence: str) -> web.Response:
    return web.Response(text=f"{sentence}\n", status=status)


def _redirect(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})
