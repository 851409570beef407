"""`rl dashboard`: all runs in the browser. FastAPI and uvicorn are imported only to serve."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import names, switch, text, whole
from rl_training.cli.output import show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import DEFAULT_DIR


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    output_dir: tuple[str, ...] = names("folders of runs, with commas between them (default runs)", "DIR,DIR")
    port: int = whole("port to listen on, 0 for any free one (default 8080)", default=8080)
    host: str = text(
        "address to listen on; any but 127.0.0.1 is read-only (default 127.0.0.1)", "ADDR", default="127.0.0.1"
    )
    read_only: bool = switch("no changes through the page, and nothing is written beside the runs")
    no_browser: bool = switch("print the address and open nothing")
    token_file: str | None = text("file that keeps one token over restarts, so that bookmarks stay valid", "FILE")
    allow_host: tuple[str, ...] = names("further host names of the page, such as that of a proxy", "NAME,NAME")
    base_path: str = text("prefix of the page's address behind a proxy", "PATH", default="")


def run(options: DashboardOptions) -> int:
    from rl_training.dashboard.server import announcement, check_folders, require_extra, serve
    from rl_training.dashboard.settings import Settings, clean_base_path, is_loopback, token_from_file

    if options.port > 65535:
        raise UsageError(f"--port must be at most 65535, not {options.port}")
    if not is_loopback(options.host) and not options.allow_host:
        raise UsageError(
            f"--host {options.host} can be reached by other machines: name what they will type with --allow-host NAME"
        )
    require_extra()
    token = {} if options.token_file is None else {"token": token_from_file(Path(options.token_file))}
    settings = Settings(
        check_folders([Path(name) for name in options.output_dir or (DEFAULT_DIR,)]),
        host=options.host,
        port=options.port,
        read_only=options.read_only,
        allow_hosts=frozenset(name.lower() for name in options.allow_host),
        base_path=clean_base_path(options.base_path),
        **token,
    )

    def announce(started: Settings) -> None:
        show(announcement(started))
        sys.stdout.flush()
        if not options.no_browser and sys.stdout.isatty() and is_loopback(started.host):
            import webbrowser

            webbrowser.open(started.url())

    serve(settings, announce)
    return 0


COMMAND = Command(
    name="dashboard",
    summary="show every run in the browser: live curves with bands over seeds, comparison, sweeps, controls",
    usage="[flags]",
    options=DashboardOptions,
    run=run,
    examples=(
        "rl dashboard",
        "rl dashboard --output-dir runs,/data/runs --port 8081",
        "rl dashboard --read-only --no-browser --token-file ~/.config/rl-dashboard-token",
    ),
    notes="The page works without a network and needs the token in the address that is printed. From another machine, "
    "forward the port with the ssh line that is printed.",
)
