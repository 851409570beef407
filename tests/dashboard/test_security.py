"""Every route refuses whoever has no business here, and nothing outside the output directory can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_cases import TOKEN, Served, served
from run_cases import fake_run

from rl_training.dashboard.app import STATIC
from rl_training.dashboard.security import POLICY, same_origin, split_host
from rl_training.runs.index import record

PUBLIC = {"/login", "/static/{name}"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "secret.txt").write_text("nobody reads this")
    run = fake_run(folder / "runs", 0, reward=1.0)
    (run / "videos").mkdir()
    (run / "videos" / "step_1.mp4").write_bytes(b"0123456789")
    (run / "videos" / "out.mp4").symlink_to(folder / "secret.txt")
    (run / "videos" / "dir").symlink_to(folder)
    record(run)
    with served(folder / "runs") as found:
        yield found


def routes(site: Served) -> list[tuple[str, str]]:
    """Every route, filled in, with its method."""
    found = []
    for route in site.app.routes:
        path = re.sub(r"\{name\}", "app.js", re.sub(r"\{key\}", "ppo__CartPole-v1__seed0__20260101-000000", route.path))
        found += [(method, path) for method in sorted(route.methods - {"HEAD"})]
    return found


def test_the_list_of_routes_is_the_whole_page(site: Served) -> None:
    assert len(routes(site)) >= 26
    assert {path for method, path in routes(site) if method == "POST"} >= {"/login"}


CASES = {
    "no token": ({}, None, 401),
    "wrong token": ({}, "wrong-token-of-the-same-length!", 401),
    "foreign host": ({"Host": "evil.example:80"}, TOKEN, 400),
    "rebound host": ({"Host": "localhost.evil.example"}, TOKEN, 400),
    "no host": ({"Host": ""}, TOKEN, 400),
    "foreign origin": ({"Origin": "http://evil.example"}, TOKEN, 403),
    "null origin": ({"Origin": "null"}, TOKEN, 403),
}


@pytest.mark.parametrize("case", CASES)
def test_each_route_refuses(site: Served, case: str) -> None:
    headers, token, wanted = CASES[case]
    for method, path in routes(site):
        code = wanted
        is_public = path == "/login" or path.startswith("/static/")
        if is_public and "token" in case:
            continue  # no secret is behind these
        if case == "null origin" and (method, path) == ("POST", "/login"):
            code = 401  # as the form of the login page sends it, without a token
        answer = site.ask(path, method, token=token, headers=headers)
        assert answer.status == code, (case, method, path, answer.status)
        assert b"nobody" not in answer.body


def test_changes_need_the_header_and_an_origin(site: Served) -> None:
    changes = [path for method, path in routes(site) if method == "POST" and path != "/login"]
    assert len(changes) == 5
    origin, change = {"Origin": site.origin}, {"X-RL-Token": site.settings.change_token}
    for path in changes:
        for headers in (origin, change, {**origin, "X-RL-Token": TOKEN}, {**origin, "X-RL-Token": "x"}):
            answer = site.ask(path, "POST", headers=headers, body={})
            assert answer.status == 403, (path, headers)
        assert site.ask(path, "GET").status in (404, 405)  # never by GET


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(site: Served, method: str) -> None:
    assert site.ask("/api/runs", method).status == 405


def test_every_answer_has_the_headers(site: Served) -> None:
    for method, path in [*routes(site), ("GET", "/nothing")]:
        if path == "/api/events":
            continue
        headers = site.ask(path, method).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
        assert headers["cache-control"] in ("no-store", "no-cache")
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1:9", "[::1]:80", "127.0.0.1", "LOCALHOST:80"])
def test_forwarded_ports_are_accepted(site: Served, host: str) -> None:
    answer = site.ask("/api/session", token=None, headers={"Host": host, "X-RL-Token": TOKEN})
    assert answer.status == 200


def test_login_sets_the_cookie_and_returns_to_the_view(site: Served) -> None:
    page = site.ask("/?view=runs&filter=%3Cscript%3E", token=None)
    assert page.status == 401
    assert b"<script>" not in page.body
    assert b'value="view=runs&amp;filter=%3Cscript%3E"' in page.body
    answer = site.ask(f"/login?token={TOKEN}", token=None)
    assert (answer.status, answer.headers["location"]) == (303, "./")
    assert site.ask("/login?token=wrong", token=None).status == 401
    form = b"token=" + TOKEN.encode() + b"&next=view%3Druns%26filter%3Da"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = site.ask("/login", "POST", token=None, body=form, headers=kind)
    assert (answer.status, answer.headers["location"]) == (303, "./?view=runs&filter=a")
    cookie = answer.headers["set-cookie"].lower()
    assert f"rl_dashboard_{site.settings.port}={TOKEN}".lower() in cookie
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    wrong = site.ask("/login", "POST", token=None, body=b"token=wrong&next=x", headers=kind)
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    for target in ("//evil.example", "http://evil.example", "\\\\evil", "a\r\nSet-Cookie: x=1"):
        form = f"token={TOKEN}&next={target}".encode()
        assert site.ask("/login", "POST", token=None, body=form, headers=kind).headers["location"].startswith("./?")


RUN = "ppo__CartPole-v1__seed0__20260101-000000"
UP = ("..", "%2e%2e", "..%2f..", "%2e%2e%2f", "....//", "..\\", "..%5c", "%252e%252e", "..;", ".%00.")
TARGETS = ("secret.txt", "etc/passwd", "index.sqlite")
PATHS = [
    *(f"/static/{up}/{target}" for up in UP[:5] for target in TARGETS),
    *(f"/api/runs/{up}/config" for up in UP),
    *(f"/api/runs/{up}%2f{RUN}/log" for up in UP),
    *(f"/api/runs/{RUN}/file?name={up}/{target}" for up in UP for target in TARGETS[:2]),
    f"/api/runs/{RUN}/file?name=/etc/passwd",
    f"/api/runs/{RUN}/file?name=videos/out.mp4",
    f"/api/runs/{RUN}/file?name=videos/dir/secret.txt",
    f"/api/runs/{RUN}/file?name=run.json",
    f"/api/runs/{RUN}/file?name=videos/../run.json",
    f"/api/runs/{RUN}/file?name=videos/../../../secret.txt",
    f"/api/runs/{RUN}/file?name=",
    "//etc/passwd",
    "/static//etc/passwd",
    "/api/sweeps/..",
    "/api/sweeps/%2e%2e%2f%2e%2e",
    "/api/runs/secret.txt",
    "/api/runs/%00",
    f"/api/runs/{RUN}/../../../secret.txt",
]


def test_there_are_sixty_hostile_paths() -> None:
    assert len(set(PATHS)) >= 60


@pytest.mark.parametrize("path", PATHS)
def test_hostile_paths_read_nothing(site: Served, path: str) -> None:
    answer = site.ask(path)
    assert answer.status in (400, 404, 405, 409, 422), (path, answer.status)
    assert b"nobody reads this" not in answer.body
    assert b"root:" not in answer.body
    assert b"SQLite" not in answer.body


def test_a_video_is_served_with_ranges(site: Served) -> None:
    whole = site.ask(f"/api/runs/{RUN}/file", name="videos/step_1.mp4")
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, b"0123456789", "video/mp4")
    part = site.ask(f"/api/runs/{RUN}/file", headers={"Range": "bytes=2-4"}, name="videos/step_1.mp4")
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    assert site.ask(f"/api/runs/{RUN}/file", headers={"Range": "bytes=99-"}, name="videos/step_1.mp4").status == 416


@pytest.mark.parametrize(
    "parameters",
    [
        {"filter": "x" * 10_001},
        {"limit": 501},
        {"limit": -1},
        {"offset": -5},
        {"limit": "many"},
    ],
)
def test_limits_of_requests(site: Served, parameters: dict[str, object]) -> None:
    answer = site.ask("/api/runs", **parameters)
    assert answer.status in (400, 422)
    assert answer.json()["error"]


def test_curves_have_limits(site: Served) -> None:
    assert site.ask("/api/curves", run=[RUN], points=5000).status == 400
    assert site.ask("/api/curves", run=[RUN], x="nonsense").status == 400
    assert site.ask("/api/curves", run=["nobody"]).status == 404
    assert site.ask("/api/curves").status == 422


def test_read_only_refuses_every_change(tmp_path: Path) -> None:
    record(fake_run(tmp_path, 0))
    with served(tmp_path, read_only=True) as site:
        for method, path in routes(site):
            if method == "POST" and path != "/login":
                assert site.post(path, {}).status == 403
        session = site.get("/api/session")
        assert (session["read_only"], session["change_token"]) == (True, None)


def test_a_server_that_others_can_reach_is_read_only(tmp_path: Path) -> None:
    record(fake_run(tmp_path, 0))
    with served(tmp_path, host="0.0.0.0", allow_hosts=frozenset({"lab.example"})) as site:
        assert site.settings.is_read_only
        answer = site.ask("/api/session", headers={"Host": "lab.example", "X-RL-Token": TOKEN})
        assert (answer.status, answer.json()["read_only"]) == (200, True)
        assert site.ask("/api/session", headers={"Host": "other.example", "X-RL-Token": TOKEN}).status == 400


def test_a_foreign_name_that_is_allowed_may_only_read(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0)
    record(run)
    with served(tmp_path, allow_hosts=frozenset({"hub.example"})) as site:
        host = {"Host": "hub.example", "Origin": "https://hub.example", "X-RL-Token": TOKEN}
        assert site.ask("/api/runs", headers=host).status == 200
        change = {**host, "X-RL-Token": site.settings.change_token, "Cookie": f"rl_dashboard_80={TOKEN}"}
        assert site.ask(f"/api/runs/{run.name}/tags", "POST", headers=change, body={"add": ["x"]}).status == 403


def test_a_base_path_is_taken_off(tmp_path: Path) -> None:
    record(fake_run(tmp_path, 0))
    with served(tmp_path, base_path="/user/me/proxy/8080") as site:
        assert site.ask("/user/me/proxy/8080/api/session").status == 200
        assert site.ask("/api/session").status == 200  # a proxy that takes it off itself
        assert site.ask("/user/me/proxy/8080").status == 200
        form, kind = f"token={TOKEN}".encode(), {"Content-Type": "application/x-www-form-urlencoded"}
        answer = site.ask("/user/me/proxy/8080/login", "POST", token=None, body=form, headers=kind)
        assert "path=/user/me/proxy/8080/" in answer.headers["set-cookie"].lower()


def test_parts_of_the_checks() -> None:
    assert split_host("127.0.0.1:80@evil.example") == ("", "")
    assert split_host("evil.example\\@127.0.0.1") == ("", "")
    assert same_origin("http://127.0.0.1:80", "127.0.0.1:80")
    assert not same_origin("http://127.0.0.1:81", "127.0.0.1:80")
    assert not same_origin("file://127.0.0.1:80", "127.0.0.1:80")


def test_the_page_never_makes_markup_of_text() -> None:
    ours = [path for path in STATIC.glob("*.js") if not path.name.startswith("uPlot")]
    assert len(ours) >= 8
    for path in ours:
        text = path.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
        ):
            assert word not in text.replace('"http://www.w3.org/2000/svg"', "").replace(
                "http://www.w3.org/2000/svg", ""
            ), (path.name, word)
    assert sum(len(path.read_text().splitlines()) for path in ours) <= 2000


def test_the_page_refers_to_nothing_outside() -> None:
    page = (STATIC / "index.html").read_text()
    assert "//" not in re.sub(r"<!DOCTYPE html>", "", page)
    assert "style=" not in page
    assert "MIT" in (STATIC / "uPlot-LICENSE.txt").read_text()
