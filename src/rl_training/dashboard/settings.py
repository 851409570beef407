"""What a dashboard serves, to whom, and with which secret."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from rl_training.types import ConfigError

DEFAULT_PORT = 8080
MIN_TOKEN = 16
"""Fewest characters of a token from a file."""


@dataclass(frozen=True)
class Settings:
    """The settings of one server."""

    output_dirs: tuple[Path, ...]
    """Output directories whose runs are shown, the first one first."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    """Nothing can be changed through the page, and nothing is written into the output directories."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Needed for every request; a new one per server unless it is kept in a file."""
    allow_hosts: frozenset[str] = frozenset()
    """Host names under which the page may be asked for, besides those of the loopback interface."""
    base_path: str = ""
    """Prefix of the addresses behind a proxy, such as /user/me/proxy/8080; empty without one."""

    @property
    def is_read_only(self) -> bool:
        """Whether changes are refused: asked for, or because other machines can reach the server."""
        return self.read_only or not is_loopback(self.host)

    @property
    def change_token(self) -> str:
        """What the page sends as X-RL-Token with every change. Pages of other origins cannot read it."""
        return hmac.new(self.token.encode(), b"change", hashlib.sha256).hexdigest()

    def allows_host(self, name: str) -> bool:
        """Whether a request may name this host: any other name would be DNS rebinding."""
        return is_loopback(name) or name.lower() in self.allow_hosts

    def url(self, *, port: int | None = None) -> str:
        """The address to open, with the token."""
        host = self.host if is_loopback(self.host) else "127.0.0.1" if self.host == "0.0.0.0" else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port if port is None else port}{self.base_path}/login?token={self.token}"


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "localhost.evil.com", "127.1")]
    [True, True, True, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clean_base_path(typed: str) -> str:
    """A prefix with a leading and without a trailing slash; ConfigError where it could not be one.

    >>> clean_base_path("/user/me/proxy/8080/"), clean_base_path("/"), clean_base_path("")
    ('/user/me/proxy/8080', '', '')
    """
    path = typed.strip("/")
    if not all(part and part not in (".", "..") for part in path.split("/")) and path:
        raise ConfigError(f"--base-path '{typed[:80]}' is not a path; write it like /user/me/proxy/8080")
    if any(not (letter.isalnum() and letter.isascii()) and letter not in "/-._~%@" for letter in path):
        raise ConfigError(f"--base-path '{typed[:80]}' has characters that an address cannot have")
    return f"/{path}" if path else ""


def token_from_file(path: Path) -> str:
    """The token in a file, which is created with a new one where it does not exist; ConfigError where it is unfit."""
    path = path.expanduser()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"cannot write the token file '{path}': {error.strerror}; name another file") from error
    else:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    try:
        token = path.read_text(encoding="ascii").strip()
        is_private = not path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the token file '{path}' ({error}); remove it and a new one is written"
        ) from error
    if not is_private:
        raise ConfigError(f"others can read the token file '{path}'; protect it with `chmod 600 {path}`")
    if len(token) < MIN_TOKEN or not all(letter.isalnum() or letter in "-_" for letter in token):
        raise ConfigError(
            f"the token file '{path}' holds no token: {MIN_TOKEN} or more letters, digits, - and _; remove it and a "
            "new one is written"
        )
    return token
