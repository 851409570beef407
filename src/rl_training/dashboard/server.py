"""Starting and stopping a server: folders and port are checked first, so that every mistake is one sentence."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.dashboard.settings import Settings, is_loopback
from rl_training.runs.index import FILE
from rl_training.runs.names import names_in
from rl_training.runs.row import OTHER_FOLDERS
from rl_training.types import ConfigError

if TYPE_CHECKING:
    import uvicorn

EXTRA = "the dashboard needs an extra: pip install 'rl-training[dashboard]'"
GRACE_SECONDS = 1
"""How long open pages may keep a server that was told to stop."""


def require_extra() -> None:
    """ConfigError with the pip command where FastAPI or uvicorn is missing."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{EXTRA} ({error})") from error


def check_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The output directories as absolute paths; ConfigError for what is none."""
    found = []
    for folder in folders:
        path = folder.expanduser().absolute()
        if not path.is_dir():
            raise ConfigError(f"no folder '{folder}'; `rl train` makes one, by default 'runs'")
        if (path / "run.json").is_file():
            raise ConfigError(
                f"'{folder}' is a run, not an output directory; use the folder around it, '{path.parent}'"
            )
        names = names_in(path)
        is_known = not names or FILE in names or any(name in names for name in OTHER_FOLDERS)
        if not is_known and not any((path / name / "run.json").is_file() for name in names):
            raise ConfigError(
                f"'{folder}' is not an output directory: there is no run in it; name the folder of your runs"
            )
        found.append(path)
    if len({path.resolve() for path in found}) < len(found):
        raise ConfigError("the same folder is named twice")
    return tuple(found)


def bind(settings: Settings) -> socket.socket:
    """A socket that listens; ConfigError where the port is taken or the address is not ours."""
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
    except socket.gaierror as error:
        raise ConfigError(f"--host '{settings.host}' is not an address of this machine ({error.strerror})") from error
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {settings.port} is in use, perhaps by another dashboard; choose another one with --port "
                f"{settings.port + 1}, or any free one with --port 0"
            ) from error
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot listen on {settings.host}:{settings.port} ({why}); choose another --port") from error
    return listener


def make_server(settings: Settings) -> uvicorn.Server:
    """A server that writes no access log: the address of a login holds the token."""
    import uvicorn

    from rl_training.dashboard.app import create_app

    app = create_app(settings)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.dashboard.watcher.close()  # open pages would hold it until they are cancelled
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
        ws="none",
    )
    return Server(config)


def serve(settings: Settings, announce: Callable[[Settings], None]) -> None:
    """Serve until a signal. `announce` is called with the settings, in which the port is the one in use."""
    require_extra()
    listener = bind(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    server = make_server(settings)
    announce(settings)
    with listener, suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def announcement(settings: Settings) -> str:
    """What is printed at the start: address, folders, and how to reach it from another machine."""
    lines = [f"  dashboard  {settings.url()}"]
    lines += [f"  folder     {path}" for path in settings.output_dirs]
    if is_loopback(settings.host):
        port = settings.port
        lines.append(
            f"  elsewhere  ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}  (then open the same address there)"
        )
    else:
        lines.append(
            "  note       other machines can reach this address: it is read-only, and its traffic is not encrypted;"
        )
        lines.append("             put a reverse proxy with TLS in front of it")
    if settings.is_read_only:
        lines.append("  mode       read-only: nothing can be changed here")
    lines.append("  stop       Ctrl-C")
    return "\n".join(lines)


def main() -> int:
    """The child process of `show`: settings as one line of JSON on stdin; ends when stdin does, so with its parent."""
    given = json.loads(sys.stdin.readline())
    settings = Settings(tuple(map(Path, given["output_dirs"])), port=given["port"], read_only=given["read_only"])
    try:
        settings = replace(settings, output_dirs=check_folders(settings.output_dirs))
        require_extra()
        listener = bind(settings)
    except ConfigError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    settings = replace(settings, port=listener.getsockname()[1])
    server = make_server(settings)

    def stop_with_parent() -> None:
        with suppress(OSError, ValueError):
            while sys.stdin.read(1024):
                pass
        server.should_exit = True

    threading.Thread(target=stop_with_parent, daemon=True).start()
    print(json.dumps({"url": settings.url(), "pid": os.getpid()}), flush=True)
    with listener, suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
