"""Tables of a comparison: the cells, and that Markdown and LaTeX say what the cells say, whatever is in them."""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from comparison_cases import by_algorithm, two_algorithms
from latex_reader import read_table

from rl_training.experiments.analysis import tables
from rl_training.experiments.analysis.tables import Table, all_tables, latex, markdown, paper_table

HOSTILE = [
    r"\input{/etc/passwd} \write18{rm -rf} \\ \end{tabular}",
    "100% of $x_1^2$ & #3 ~ {a} --- [b] *c*",
    "\"quoted\" 'single' `back` <b>|pipe|</b>",
    "-5 a-b [-0.5, -.5]",
]


def test_the_tables_of_a_comparison(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    scores, better, cost, configs = all_tables(by_algorithm(tmp_path))
    assert (scores.title, better.title) == ("reward on CartPole-v1", "reward: probability of improvement")
    assert [list(cells[:3]) + list(cells[4:]) for cells in (scores.headers, *scores.rows)] == [
        ["entry", "runs", "IQM", "mean", "median", "steps to 25.0", "reached"],
        ["ppo", "4", "55.0", "55.0", "55.0", "2,000", "4 of 4"],
        ["a2c", "4", "25.0", "30.0", "25.0", "-", "2 of 4"],
    ]
    assert better.rows[0][:3] == ["ppo", "a2c", "0.84"]
    assert list(cost.headers) == ["entry", "runs", "time", "steps/s", "peak memory"]
    assert cost.rows[0] == ["ppo", "4", "11.5 s", "261", "500 MB"]
    assert list(configs.headers) == ["field", "ppo", "a2c"]
    assert ["algo", "ppo", "a2c"] in configs.rows


def test_several_environments_have_a_table_for_all(tmp_path: Path) -> None:
    two_algorithms(tmp_path, tasks=["CartPole-v1", "Acrobot-v1"])
    titles = [table.title for table in all_tables(by_algorithm(tmp_path))]
    assert titles == [
        "reward on Acrobot-v1",
        "reward on CartPole-v1",
        "reward on all environments, 0 the worst run and 1 the best of each",
        "reward: probability of improvement",
        "cost of a run (medians)",
        "what differs between the configs",
    ]


def test_the_table_of_a_paper(tmp_path: Path) -> None:
    """The best in bold: the highest return, and the lowest loss."""
    two_algorithms(tmp_path)
    found = paper_table(by_algorithm(tmp_path, "reward", "loss"))
    assert list(found.headers) == ["", "CartPole-v1, reward", "CartPole-v1, loss"]
    assert found.rows[0][1].startswith("55.0 [4")
    assert found.best == {(0, 1), (0, 2)}
    assert found.title == "Interquartile mean of reward, loss over 4 runs, with 95% stratified bootstrap intervals"
    read = read_table(latex(found))
    assert (read.columns, read.rules) == ("lrr", [0, 1, 3])
    assert read.rows == [list(found.headers), *found.rows]
    assert read.caption == f"{found.title}."
    assert latex(found).count(r"\textbf") == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_prints_what_the_text_says(text: str) -> None:
    read = read_table(latex(Table(text, [text, "b"], [["c", text], [text, ""]], frozenset({(0, 1)}))))
    assert (read.caption, read.rows) == (f"{text}.", [[text, "b"], ["c", text], [text, ""]])


def test_letters_that_latex_cannot_set() -> None:
    assert tables.latex_text("é λ 日本 × \x07") == "é ? ?? ? ?"


@pytest.mark.parametrize("text", ["a|b", "<img src=x onerror=alert(1)>", "*a* _b_ `c` [d](javascript:e) \\|", "&amp;"])
def test_markdown_prints_what_the_text_says(text: str) -> None:
    cell = markdown(Table("t", ["a"], [[text]])).splitlines()[2].removeprefix("| ").removesuffix(" |")
    assert unescape(re.sub(r"\\(.)", r"\1", cell)) == text
    assert not set(re.sub(r"\\.", "", cell)) & set("|*_`[]<>")


def test_markdown_is_a_table() -> None:
    text = markdown(Table("t", ["", "x"], [["a", "1"], ["b", "2"]], frozenset({(1, 1)})))
    assert text == "|  | x |\n| --- | ---: |\n| a | 1 |\n| b | **2** |\n"


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(tables).failed == 0


if shutil.which("pdflatex"):

    @pytest.mark.slow
    def test_latex_compiles(tmp_path: Path) -> None:
        """A whole document, with shell escapes on: nothing in a name is a command."""
        rows = [[text, "1.0 [0.5, 2.0]"] for text in [*HOSTILE, "é ü ß Ø", "n" * 300]]
        two_algorithms(tmp_path)
        paper = latex(paper_table(by_algorithm(tmp_path, "reward", "loss")))
        body = paper + latex(Table("Hostile names", ["", "score"], rows, frozenset({(0, 1)})))
        document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
        (tmp_path / "paper.tex").write_text(document)
        words = ["pdflatex", "-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
        result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert result.returncode == 0, result.stdout[-2000:]
        assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")
