"""The HTTP server of a dispatcher: a page for people, its data, metrics, and a sign of life."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from aiohttp import web

from cachew_core.dispatcher.web.metrics import render
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2
from cachew_core.status_document import status_document

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEADERS = {
    # Job names and reasons are other people's texts: the page runs its own script only.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class WebServer:
    """Serves until it is stopped.

    Args:
        host: the address to listen on.
        port: 0 takes a free one.
        status: gives the service's status.
        samples: gives each job's samples, by its place in the status.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        status: Callable[[], cachew_pb2.ServiceStatus],
        samples: Callable[[], list[list[dict[str, object]]]],
    ) -> None:
        self.address = ""
        self._host = host
        self._port = port
        self._status = status
        self._samples = samples
        app = web.Application()
        app.router.add_get("/", _file("page.html", "text/html"))
        app.router.add_get("/page.js", _file("page.js", "text/javascript"))
        app.router.add_get("/api/status", self._get_status)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", _get_health)
        app.on_response_prepare.append(_add_headers)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> str:
        """Begins to listen; the page's address.

        Raises:
            ServiceError: the port can't be had.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ServiceError(
                f"the page can't be served at {self._host}:{self._port}: {error}"
            ) from error
        port = self._runner.addresses[0][1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{host}:{port}"
        return self.address

    async def stop(self) -> None:
        """Ends it."""
        await self._runner.cleanup()

    async def _get_status(self, request: web.Request) -> web.Response:
        document: dict[str, Any] = status_document(self._status())
        for job, samples in zip(document["jobs"], self._samples(), strict=True):
            job["samples"] = samples
        return web.json_response(document)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._status()), headers={"Content-Type": _METRICS_TYPE})


def _file(name: str, kind: str) -> Callable[[web.Request], Any]:
    text = files("cachew_core.dispatcher.web").joinpath(name).read_text()

    async def get(request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return get


async def _get_health(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
