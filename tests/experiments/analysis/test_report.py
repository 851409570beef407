"""The report is one page that loads nothing, and what runs are called is text on it and never markup."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from comparison_cases import by_algorithm, scored_run, two_algorithms

from rl_training.experiments.analysis.compare import compare
from rl_training.experiments.analysis.entries import find_entries
from rl_training.experiments.analysis.report import POLICY, html_report

VOID = {"meta", "br", "hr", "img", "link", "input"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "caption", "thead", "tbody"),
    *("tr", "th", "td", "figure", "figcaption", "svg", "g", "path", "defs", "use", "text", "clippath", "rect"),
}


class Page(HTMLParser):
    """Every element, attribute and text; elements must be closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def test_the_page_has_tables_pictures_and_runs(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    text = html_report(by_algorithm(tmp_path, "reward", "loss"))
    page = Page(text)
    assert page.tags <= ALLOWED
    assert text.count("<svg") == 4
    for shown in ("55.0", "0.84", "500 MB", "ppo__CartPole-v1__seed3__20260101-000003", "performance profile", "IQM"):
        assert shown in page.texts
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value.strip("#") for name, value in page.attributes if name in ("href", "xlink:href")]
    targets += re.findall(r"url\(#([^)]+)\)", " ".join(value for _, value in page.attributes))
    assert targets
    assert set(targets) <= set(ids)


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    text = html_report(by_algorithm(tmp_path))
    page = Page(text)
    assert ("content", POLICY) in page.attributes
    assert "://" not in text
    assert not {name for name, _ in page.attributes} & {"src", "srcset", "action", "data", "xmlns"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("#") for name, value in page.attributes if name.endswith("href"))


HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "]]></text></svg><svg onload=alert(1)>",
    '" onmouseover="alert(1)',
    "&lt;b&gt; &amp; $x_1$ \\frac{",
    "\x1b[2J\x00\u202egnp.exe\nnext",
    "../../../etc/passwd",
    "n" * 300,
]


def test_names_are_text(tmp_path: Path) -> None:
    for number, name in enumerate(HOSTILE):
        run = scored_run(tmp_path, number, [1.0, 2.0, 3.0 + number], env_id=name)
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "name": name, "tags": [name], "git": {"commit": name}}))
    text = html_report(compare(find_entries(sorted(tmp_path.iterdir()), tmp_path)), title=HOSTILE[0])
    page = Page(text)
    assert page.tags <= ALLOWED
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "<script>alert(1)</script>" in page.texts
    assert "&lt;b&gt; &amp; $x_1$ \\frac{" in page.texts
    assert not {letter for letter in text if not letter.isprintable()} - {"\n"}


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    assert html_report(by_algorithm(tmp_path)) == html_report(by_algorithm(tmp_path))


def test_without_matplotlib_the_page_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_algorithms(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = html_report(by_algorithm(tmp_path))
    assert "<svg" not in text
    assert "plots need an extra: pip install" in text
    assert "55.0" in text
