"""Who may ask, and what a browser may do with the answers: Host, Origin, token, headers, confined paths.

A local server is attacked through its owner's browser: any page can send requests to 127.0.0.1, and a name that is made
to resolve there (DNS rebinding) makes such a page same-origin. So every request is checked before it reaches a route.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rl_training.dashboard.settings import Settings, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
METHODS = ("GET", "HEAD", "POST")
PUBLIC = "/static/"
"""Files of the package itself; the login page needs its style before there is a token."""
LOGIN = "/login"
MAX_BODY = 64 * 1024
LOGIN_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>rl dashboard: token</title><link rel="stylesheet" href="static/app.css">
<link rel="icon" href="static/favicon.svg">
</head><body class="login"><main><h1>rl dashboard</h1>
<p>This page needs the token that <code>rl dashboard</code> printed when it started.</p>
<form method="post" action="login">
<label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="off" autofocus required>
<input type="hidden" name="next" value="NEXT"> <button type="submit">Open</button></form>PROBLEM
</main></body></html>
"""


def login_page(query: str, problem: str = "") -> str:
    """The page that asks for the token and returns to the view that `query` describes."""
    from html import escape

    text = f'<p class="error" role="alert">{escape(problem)}</p>' if problem else ""
    return LOGIN_PAGE.replace("NEXT", escape(query, quote=True)).replace("PROBLEM", text)


class Guard:
    """ASGI middleware that checks every request and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets: the server closes the connection
        base = self.settings.base_path
        path: str = scope["path"]
        if base and (path == base or path.startswith(f"{base}/")):
            path = path[len(base) :] or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self.refusal(scope["method"], path, headers)
        if refusal is None:
            await self.app(scope, receive, send_with_headers)
        elif refusal[0] == 401 and path == "/":
            page = login_page(scope["query_string"].decode("latin-1")).encode()
            await _answer(send_with_headers, 401, page, "text/html; charset=utf-8")
        else:
            body = json.dumps({"error": refusal[1]}).encode()
            await _answer(send_with_headers, refusal[0], body, "application/json")

    def refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason where a request is refused; None where it may go on."""
        settings = self.settings
        host, port = split_host(headers.get("host", ""))
        if not settings.allows_host(host):
            return 400, "this host name is not served; start the dashboard with --allow-host NAME to allow it"
        if method not in METHODS:
            return 405, "only GET, HEAD and POST are served"
        origin = headers.get("origin")
        # a form of a page without referrers sends `null`; a login needs the token anyway
        is_form = origin == "null" and method == "POST" and path == LOGIN
        if origin is not None and not is_form and not same_origin(origin, headers["host"]):
            return 403, "requests of other origins are refused"
        if path.startswith(PUBLIC) or path == LOGIN:
            return None if method != "POST" or path == LOGIN else (405, "static files can only be read")
        given = cookie_token(headers.get("cookie", ""), port)
        if not matches(given, settings.token) and not matches(headers.get("x-rl-token"), settings.token):
            return 401, "the token is missing or wrong; open the address that `rl dashboard` printed"
        if method == "POST":
            return self.change_refusal(headers, host)
        return None

    def change_refusal(self, headers: dict[str, str], host: str) -> tuple[int, str] | None:
        """Why a change is refused, besides what holds for reading; None where it is allowed."""
        settings = self.settings
        if settings.is_read_only or not is_loopback(host):
            return 403, "this dashboard is read-only"
        if "origin" not in headers:
            return 403, "changes need an Origin header"
        if not matches(headers.get("x-rl-token"), settings.change_token):
            return 403, "changes need the header X-RL-Token of the page"
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > MAX_BODY:
            return 413, "the request is too large"
        if "transfer-encoding" in headers:
            return 411, "the request needs a Content-Length"
        return None


async def _answer(send: Send, status: int, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def split_host(value: str) -> tuple[str, str]:
    """Name and port of a Host header; an empty name where it is none.

    >>> split_host("localhost:8080"), split_host("[::1]:80"), split_host("a@b"), split_host("127.0.0.1")
    (('localhost', '8080'), ('::1', '80'), ('', ''), ('127.0.0.1', ''))
    """
    if not value or any(letter in value for letter in "@/\\\\ ,?#\t") or not value.isascii():
        return "", ""
    try:
        parts = urlsplit(f"//{value}")
        return parts.hostname or "", "" if parts.port is None else str(parts.port)
    except ValueError:
        return "", ""


def same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the host that was asked; behind a TLS proxy its scheme is https."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()


def cookie_name(port: str) -> str:
    """All ports of 127.0.0.1 share their cookies, so the port is part of the name."""
    return f"rl_dashboard_{port or '80'}"


def cookie_token(header: str, port: str) -> str | None:
    try:
        cookies: SimpleCookie = SimpleCookie(header)
    except CookieError:
        return None
    found = cookies.get(cookie_name(port))
    return None if found is None else found.value


def matches(given: str | None, token: str) -> bool:
    """Comparison in constant time."""
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def confined(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path, its links followed, is inside one of the roots."""
    try:
        real = path.resolve(strict=True)
        return any(real.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError):
        return False
