"""Who may talk to the studio: this machine's browser, at an address that only the custodian was told.

Refused, before anything of the studio runs: other names of the host (a stranger's page whose name was pointed at the
loopback address), other methods, addresses without the secret, and changes that come from another page than the
studio's own (another origin, no origin, no token of the form).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

LARGEST_FORM = 2**20
FORM = "application/x-www-form-urlencoded"
# Pages hold what a schema says, escaped; should some text ever get through, nothing in it may run or leave.
POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # with none, a browser would not say where a form comes from
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Passes on to ``app`` what may pass, without the secret in its path; answers the rest with a bare status."""

    def __init__(self, app: App, secret: str, port: int) -> None:
        self._app, self._secret = app, secret
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = self.refusal(scope) if scope["type"] == "http" else 403
        if refused:
            if scope["type"] == "http":
                await _answer(send, refused)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        inside = dict(scope)
        inside["path"] = scope["path"][len(self._secret) + 1 :] or "/"
        inside["raw_path"] = inside["path"].encode()

        started = False

        async def with_headers(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = {name.lower() for name, _ in message["headers"]}
                own = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        try:
            await self._app(inside, receive, with_headers)
        except Exception:  # a server would log it, and its words may quote a cell
            if not started:
                await _answer(send, 500)

    def refusal(self, scope: Scope) -> int:
        """The status of a request that may not pass; 0 for one that may."""
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]

        def only(name: str) -> str | None:
            found = [value for key, value in headers if key == name]
            return found[0] if len(found) == 1 else None

        client = scope.get("client")
        if client is not None and client[0] not in ("127.0.0.1", "::1"):
            return 403
        host = only("host")
        if host is None or host.lower() not in self._hosts:
            return 421
        if scope["method"] not in ("GET", "POST"):
            return 405
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not hmac.compare_digest(first.encode(), self._secret.encode()):
            return 404
        site = only("sec-fetch-site")
        if scope["method"] == "GET":
            return 403 if site in ("cross-site", "same-site") and only("sec-fetch-dest") != "document" else 0
        if only("origin") != f"http://{host}" or site not in (None, "same-origin"):
            return 403
        if (only("content-type") or "").split(";")[0].strip().lower() != FORM:
            return 415
        return 0


async def _answer(send: Any, status: int) -> None:
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
