"""A comparison as one self-contained HTML page: no scripts, no fonts, no external addresses.

All text from runs is escaped, and a content security policy forbids everything else.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rl_training.experiments.analysis.comparison import Comparison
from rl_training.experiments.analysis.entries import shortened
from rl_training.experiments.analysis.figures import comparison_figure, curves_figure
from rl_training.experiments.analysis.plots import write_figure
from rl_training.experiments.analysis.tables import Table, all_tables
from rl_training.system.terminal_text import readable
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light; --line: #d0d7de; --soft: #57606a; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0 1.2rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: right; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 500; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
.note { border-left: 3px solid #d29922; padding-left: .8rem; } .small { color: var(--soft); font-size: .85rem; }
"""
SHOWN = 16
"""Characters shown of each property of a run: enough of a hash."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"
MAX_DREAM_BYTES = 2_000_000
"""A larger video or plot of a world model's dream is named, not embedded."""
DREAMING = (
    "What the world model of a run foresees at its last saved step: it sees the first observations (green border, grey "
    "ground) and is then on its own. Videos show truth, model and their difference."
)
READING = (
    "IQM is the mean of the middle half of the runs. Intervals come from a stratified bootstrap: runs are redrawn "
    "within each environment. The probability of improvement is that of a run of the first entry doing better than one "
    "of the second on the same environment, ties counting half. With few runs every interval is too narrow."
)


def html_report(comparison: Comparison, title: str = "Comparison of runs") -> str:
    """The page as HTML. Without matplotlib it has no figures and says so."""
    body = [f"<h1>{_text(title)}</h1>", f'<p class="small">{_text(_counts(comparison))}</p>']
    body += [f'<p class="note">{_text(note)}</p>' for note in comparison.notes]
    body += [_table(table) for table in all_tables(comparison)]
    body.append("<h2>Plots</h2>")
    for number, result in enumerate(comparison.metrics):
        for kind, draw in (("learning curves", curves_figure), ("comparison", comparison_figure)):
            try:
                picture = inline_svg(draw(result), f"p{number}{kind[0]}-")
            except ConfigError as error:
                body.append(f'<p class="small">{_text(result.metric.name)}, no {kind}: {_text(str(error))}</p>')
            else:
                words = f"{_text(result.metric.name)}: {kind}"
                body.append(f"<figure>{picture}<figcaption class=small>{words}</figcaption></figure>")
    body += _dreams(comparison)
    body += ["<h2>Runs</h2>", _table(_runs_table(comparison)), f'<p class="small">{_text(READING)}</p>']
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def inline_svg(figure: Figure, prefix: str) -> str:
    """A figure as an inline SVG element; its ids get a prefix, because several figures on a page would share them."""
    root = ElementTree.fromstring(write_figure(figure, "svg"))
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) == "metadata"]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            value = f"{prefix}{value}" if name == "id" else value.replace("url(#", f"url(#{prefix}")
            value = f"#{prefix}{value[1:]}" if _local(name) == "href" else value
            element.attrib[_local(name)] = value
    text = io.BytesIO()
    ElementTree.ElementTree(root).write(text, encoding="utf-8")
    return text.getvalue().decode()


def _dreams(comparison: Comparison) -> list[str]:
    """The latest dream of each run that has a world model, embedded; nothing where no run has one."""
    figures = []
    for run in (run for entry in comparison.entries for run in entry.runs):
        found = [*run.path.glob("videos/dream_*.mp4"), *run.path.glob("plots/dream_*.svg")]
        latest = max((path.name.split("_")[1][:12] for path in found), default="")
        shown = sorted(path for path in found if path.name.startswith(f"dream_{latest}"))
        figures += [_dream(path, f"dream of {run.path.name}: {path.name}") for path in shown]
    return [] if not figures else ["<h2>Dreams</h2>", f'<p class="small">{_text(DREAMING)}</p>', *figures]


def _dream(path: Path, words: str) -> str:
    """One video or plot as a figure. An SVG file is shown as an image, in which no script runs."""
    if path.stat().st_size > MAX_DREAM_BYTES:
        return f'<p class="small">{_text(words)} (too large to embed)</p>'
    content = base64.b64encode(path.read_bytes()).decode()
    if path.suffix == ".mp4":
        shown = f'<video controls loop src="data:video/mp4;base64,{content}"></video>'
    else:
        shown = f'<img alt="{_text(words)}" src="data:image/svg+xml;base64,{content}">'
    return f"<figure>{shown}<figcaption class=small>{_text(words)}</figcaption></figure>"


def _table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"

    head, rows = row(table.headers, "th"), "\n".join(row(cells, "td") for cells in table.rows)
    caption = f"<caption>{_text(table.title)}</caption>"
    return f'<div class="scroll"><table>{caption}\n<thead>{head}</thead>\n<tbody>{rows}</tbody></table></div>'


def _runs_table(comparison: Comparison) -> Table:
    columns = ("status", "algorithm", "environment", "seed", "env_steps", "config_sha256", "git")
    rows = [
        [
            shortened(entry.label),
            run.path.name,
            *("-" if run.row[name] is None else str(run.row[name])[:SHOWN] for name in columns),
        ]
        for entry in comparison.entries
        for run in entry.runs
    ]
    return Table("Every run", ["entry", "run", *columns], rows)


def _counts(comparison: Comparison) -> str:
    runs = sum(len(entry.runs) for entry in comparison.entries)
    return f"{len(comparison.entries)} entries, {runs} runs, {', '.join(comparison.tasks)}"


def _text(text: str) -> str:
    """A text, escaped for the page."""
    return escape(readable(text.replace("\n", " ")))


def _local(name: str) -> str:
    return name.rpartition("}")[2]
