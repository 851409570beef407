"""The routes of the dashboard. What they answer is computed in the modules beside this one."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Body, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from rl_training.dashboard.actions import Actions
from rl_training.dashboard.live import MAX_PAGES, Page, Watcher
from rl_training.dashboard.pages import agents as agents_page
from rl_training.dashboard.pages import run as run_page
from rl_training.dashboard.pages.alerts import Alerts
from rl_training.dashboard.pages.sweeps import Sweeps
from rl_training.dashboard.ranges import file_answer
from rl_training.dashboard.reading import exports
from rl_training.dashboard.reading.columns import ColumnStore
from rl_training.dashboard.reading.curves import MAX_CURVES, Axis, CurveRequest, curve_answer, packed
from rl_training.dashboard.reading.grouping import MAX_RUNS
from rl_training.dashboard.reading.tables import MAX_ROWS, NoRunError, RunRef, RunTable
from rl_training.dashboard.reading.views import BandRequest, Bands, compared, comparison_answer, logged_metric
from rl_training.dashboard.security import Guard, cookie_name, login_page, matches, split_host
from rl_training.dashboard.settings import Settings
from rl_training.dashboard.text import MAX_ANSWER, AnswerTooLargeError, encoded
from rl_training.types import ConfigError, RLTrainingError
from rl_training.version import __version__

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
MAX_HEAVY = 4
"""Requests for statistics or curves that are computed at a time; others wait."""
HEAVY_SECONDS = 60.0
MAX_TEXT = 10_000
"""Characters of a filter and of other texts in a request."""
COLUMNS = "status,name,algorithm,environment,seed,env_steps,reward,tags,started"

Text = Annotated[str, Query(max_length=MAX_TEXT)]
Keys = Annotated[list[str], Query(max_length=MAX_RUNS, alias="run")]
Names = Annotated[list[str], Query(max_length=100)]
Words = Annotated[list[str], Body(max_length=100)]
Share = Annotated[float, Query(ge=0, lt=1)]


class Dashboard:
    """State of a server: the table, the column store, caches of statistics, the watcher."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.table = RunTable(settings.output_dirs, read_only=settings.is_read_only)
        self.store = ColumnStore(caches=not settings.is_read_only)
        self.bands = Bands(self.store)
        self.sweeps = Sweeps(self.table)
        self.alerts = Alerts(self.table)
        self.actions = Actions(self.table)
        self.watcher = Watcher(self.table)
        self._heavy = threading.BoundedSemaphore(MAX_HEAVY)

    @contextmanager
    def heavy(self) -> Iterator[None]:
        """Room for one request that computes; BusyError where none becomes free in time."""
        if not self._heavy.acquire(timeout=HEAVY_SECONDS):
            raise BusyError
        try:
            yield
        finally:
            self._heavy.release()

    def chosen(self, runs: Sequence[str], text: str) -> list[RunRef]:
        """The runs that a request names by their keys, else those that pass a filter."""
        self.table.refresh()
        if runs:
            return [self.table.find(key) for key in dict.fromkeys(runs)]
        return list(self.table.select(text))


class BusyError(Exception):
    """Too many requests are being computed."""


def create_app(settings: Settings) -> FastAPI:
    """The application: every route behind the guard of `security`."""
    dashboard = Dashboard(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        import asyncio

        watching = asyncio.create_task(dashboard.watcher.watch())
        yield
        watching.cancel()
        dashboard.table.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.dashboard = dashboard
    _page_routes(app, settings)
    _table_routes(app, dashboard)
    _curve_routes(app, dashboard)
    _run_routes(app, dashboard)
    _other_routes(app, dashboard)
    _change_routes(app, dashboard)
    _errors(app)
    app.add_middleware(Guard, settings=settings)
    return app


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, "application/json")


def _errors(app: FastAPI) -> None:
    def refuse(status: int) -> Callable[[Request, Exception], Response]:
        return lambda request, error: answer({"error": str(error)}, status)

    app.add_exception_handler(NoRunError, refuse(404))
    app.add_exception_handler(ConfigError, refuse(400))
    app.add_exception_handler(RLTrainingError, refuse(409))
    app.add_exception_handler(AnswerTooLargeError, refuse(413))
    app.add_exception_handler(404, lambda request, error: answer({"error": "there is nothing here"}, 404))
    app.add_exception_handler(
        BusyError, lambda request, error: answer({"error": "the dashboard is busy; try again in a moment"}, 503)
    )
    app.add_exception_handler(RequestValidationError, lambda request, error: answer({"error": _problem(error)}, 422))
    app.add_exception_handler(
        Exception, lambda request, error: answer({"error": f"unexpected {type(error).__name__}"}, 500)
    )


def _problem(error: Exception) -> str:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return f"{first['loc'][-1]}: {first['msg']}"


def _page_routes(app: FastAPI, settings: Settings) -> None:
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
    read = {name: (path.read_bytes(), TYPES[path.suffix]) for name, path in known.items()}

    @app.get("/")
    def page() -> Response:
        return Response(read["index.html"][0], media_type="text/html")

    @app.get("/static/{name}")
    def static(name: str, request: Request) -> Response:
        if name not in read:
            return answer({"error": "there is nothing here"}, 404)
        content, kind = read[name]
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag, "cache-control": "no-cache"})
        return Response(content, headers={"etag": tag, "cache-control": "no-cache"}, media_type=kind)

    @app.get("/login")
    def login(request: Request, token: Text = "") -> Response:
        return let_in(request, token, "")

    @app.post("/login")
    async def login_by_form(request: Request) -> Response:
        body = (await request.body())[: 4 * MAX_TEXT].decode(errors="replace")
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        return let_in(request, fields.get("token", ""), fields.get("next", ""))

    def let_in(request: Request, token: str, query: str) -> Response:
        if not matches(token, settings.token):
            return HTMLResponse(login_page(query, "That is not the token of this server." if token else ""), 401)
        port = split_host(request.headers.get("host", ""))[1]
        safe = "".join(
            letter for letter in query if letter.isascii() and letter.isprintable() and letter not in ' "<>\\'
        )
        response = RedirectResponse(f"./{'?' if safe else ''}{safe}", 303)
        response.set_cookie(
            cookie_name(port), settings.token, path=f"{settings.base_path}/", httponly=True, samesite="lax"
        )
        return response


def _table_routes(app: FastAPI, dashboard: Dashboard) -> None:
    @app.get("/api/session")
    def session(request: Request) -> Response:
        """What the page may do here, and the token that its changes need."""
        from rl_training.dashboard.settings import is_loopback

        settings = dashboard.settings
        host = split_host(request.headers.get("host", ""))[0]
        read_only = settings.is_read_only or not is_loopback(host)
        return answer(
            {
                "version": __version__,
                "read_only": read_only,
                "change_token": None if read_only else settings.change_token,
                "output_dirs": [str(path) for path in settings.output_dirs],
            }
        )

    @app.get("/api/runs")
    def runs(
        request: Request,
        filter: Text = "",
        sort: Text = "",
        columns: Text = COLUMNS,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=MAX_ROWS)] = 200,
    ) -> Response:
        table = dashboard.table
        table.refresh()
        tag = f'"{table.stamp(filter, sort, columns, offset, limit)}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        found = table.page(filter, sort, [name for name in columns.split(",") if name], offset, limit)
        return answer(found, headers={"etag": tag})

    @app.get("/api/fields")
    def fields() -> Response:
        """Names for pickers of columns and groups: columns of the index and config fields of the newest runs."""
        return answer(exports.known_fields(dashboard.table))

    @app.get("/api/metrics")
    def metrics(runs: Keys = [], filter: Text = "") -> Response:
        return answer({"metrics": exports.metric_names(dashboard.chosen(runs, filter))})


def _curve_routes(app: FastAPI, dashboard: Dashboard) -> None:
    def axis_of(x: str, low: float | None, high: float | None) -> Axis:
        return Axis(x, low, high)

    @app.get("/api/curves")
    def curves(
        runs: Keys,
        metric: Text = "reward",
        x: Text = "env_steps",
        points: int = 600,
        smoothing: Share = 0.0,
        low: float | None = None,
        high: float | None = None,
    ) -> Response:
        refs = dashboard.chosen(runs, "")
        if len(refs) > MAX_CURVES:
            raise ConfigError(f"{len(refs)} curves at once are too many; at most {MAX_CURVES}")
        logged = logged_metric(dashboard.table, refs, metric)
        request = CurveRequest(logged, axis_of(x, low, high), points, smoothing)
        with dashboard.heavy():
            found = [curve_answer(dashboard.store, ref.key, ref.path, ref.row, request) for ref in refs]
        header = {"metric": logged, "sampled": False, "curves": [one for one, _ in found]}
        data = packed(header, [array for _, arrays in found for array in arrays])
        if len(data) > MAX_ANSWER:
            raise AnswerTooLargeError("these curves are too large for one answer; ask for fewer points")
        return Response(data, media_type="application/octet-stream")

    @app.get("/api/bands")
    def bands(
        runs: Keys = [],
        filter: Text = "",
        by: Text = "recipe",
        metric: Text = "reward",
        x: Text = "env_steps",
        low: float | None = None,
        high: float | None = None,
    ) -> Response:
        refs = dashboard.chosen(runs, filter)
        request = BandRequest(metric, axis_of(x, low, high), tuple(name for name in by.split(",") if name))
        with dashboard.heavy():
            return answer(dashboard.bands.answer(dashboard.table, refs, request))

    @app.get("/api/curves.csv")
    def curves_csv(runs: Keys, metric: Text = "reward", x: Text = "env_steps") -> Response:
        refs = dashboard.chosen(runs, "")
        with dashboard.heavy():
            logged = logged_metric(dashboard.table, refs, metric)
            text = exports.curves_csv(dashboard.store, refs, logged, axis_of(x, None, None))
        return exports.attachment(text.encode(), "curves.csv", "text/csv; charset=utf-8")


def _run_routes(app: FastAPI, dashboard: Dashboard) -> None:
    def find(key: str) -> RunRef:
        dashboard.table.refresh()
        return dashboard.table.find(key)

    @app.get("/api/runs/{key}")
    def details(key: str) -> Response:
        return answer(run_page.details(find(key)))

    @app.get("/api/runs/{key}/config")
    def config(key: str) -> Response:
        return answer(run_page.config_answer(find(key)))

    @app.get("/api/runs/{key}/diff")
    def diff(key: str, other: Text = "default") -> Response:
        return answer(run_page.difference_answer(find(key), None if other == "default" else find(other)))

    @app.get("/api/runs/{key}/git")
    def git(key: str) -> Response:
        return answer({"diff": run_page.text_end(find(key).path / "git.diff")})

    @app.get("/api/runs/{key}/log")
    def log(key: str, tail: Annotated[int, Query(ge=1, le=5000)] = 200) -> Response:
        return answer(run_page.log_answer(find(key), tail))

    @app.get("/api/runs/{key}/alerts")
    def alerts(key: str) -> Response:
        return answer({"alerts": run_page.alerts(find(key).path)})

    @app.get("/api/runs/{key}/evals")
    def evals(key: str) -> Response:
        return answer(run_page.evaluations(find(key).path))

    @app.get("/api/runs/{key}/agents")
    def agents(key: str) -> Response:
        return answer(agents_page.agents_answer(find(key)))

    @app.get("/api/runs/{key}/file")
    def file(key: str, request: Request, name: Text) -> Response:
        path, kind = run_page.file_of(find(key).path, name)
        return file_answer(path, kind, request.headers.get("range"))

    @app.get("/api/runs/{key}/rows.jsonl")
    def rows(key: str) -> Response:
        ref = find(key)
        return exports.rows_answer(ref.path / "logs" / "metrics.jsonl", f"{ref.path.name}.jsonl")


def _other_routes(app: FastAPI, dashboard: Dashboard) -> None:
    @app.get("/api/compare")
    def compare(
        runs: Keys = [],
        filter: Text = "",
        by: Text = "recipe",
        metrics: Text = "reward",
        threshold: float | None = None,
    ) -> Response:
        with dashboard.heavy():
            return answer(comparison_answer(_compared(dashboard, runs, filter, by, metrics, threshold)))

    @app.get("/api/report.html")
    def report(runs: Keys = [], filter: Text = "", by: Text = "recipe", metrics: Text = "reward") -> Response:
        from rl_training.experiments.analysis.report import html_report

        with dashboard.heavy():
            page = html_report(_compared(dashboard, runs, filter, by, metrics, None))
        return exports.attachment(page.encode(), "report.html", "text/html; charset=utf-8")

    @app.get("/api/sweeps")
    def sweeps() -> Response:
        dashboard.table.refresh()
        return answer(dashboard.sweeps.listing())

    @app.get("/api/sweeps/{key}")
    def sweep(key: str) -> Response:
        dashboard.table.refresh()
        with dashboard.heavy():
            return answer(dashboard.sweeps.answer(key))

    @app.get("/api/alerts")
    def alerts(limit: Annotated[int, Query(ge=1, le=500)] = 200) -> Response:
        dashboard.table.refresh()
        return answer(dashboard.alerts.newest(limit))

    @app.get("/api/events")
    async def events(request: Request, runs: Keys = [], metric: Names = [], after: Text = "") -> Response:
        if len(dashboard.watcher.pages) >= MAX_PAGES:
            return answer({"error": f"{MAX_PAGES} pages are open already"}, 503)
        page = Page(frozenset(runs), frozenset(metric))
        stream = dashboard.watcher.stream(page, request.headers.get("last-event-id") or after or None)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _compared(
    dashboard: Dashboard, runs: Sequence[str], text: str, by: str, metrics: str, threshold: float | None
) -> Any:
    refs = dashboard.chosen(runs, text)
    keys = [name for name in by.split(",") if name]
    return compared(dashboard.table, refs, keys, [name for name in metrics.split(",") if name], threshold)


def _change_routes(app: FastAPI, dashboard: Dashboard) -> None:
    actions = dashboard.actions

    def find(key: str) -> RunRef:
        dashboard.table.refresh()
        actions.reap()
        return dashboard.table.find(key)

    @app.post("/api/runs/{key}/tags")
    def tags(key: str, add: Words = [], remove: Words = []) -> Response:
        return answer(actions.tag(find(key), add, remove))

    @app.post("/api/runs/{key}/notes")
    def notes(key: str, text: Annotated[str, Body(embed=True, max_length=2 * MAX_TEXT)]) -> Response:
        return answer(actions.note(find(key), text))

    @app.post("/api/runs/{key}/stop")
    def stop(key: str, together: Annotated[bool, Body(embed=True)] = False) -> Response:
        return answer(actions.stop(find(key), together=together))

    @app.post("/api/runs/{key}/resume")
    def resume(key: str) -> Response:
        return answer(actions.resume(find(key)))

    @app.post("/api/runs/{key}/clean")
    def clean(key: str) -> Response:
        return answer(actions.clean(find(key)))

    with suppress(RLTrainingError, OSError):
        dashboard.table.refresh()
