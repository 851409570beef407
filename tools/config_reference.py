"""Write docs/config-reference.md from the config dataclasses: every section, field, type, default and sentence.

python tools/config_reference.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.config.fields import FieldDoc, attribute_docs, describe, field_docs, hints_of, section_of, written
from rl_training.config.monitor import AlertRuleConfig
from rl_training.config.schema import PartConfig, TrainConfig, WrapperConfig, builtin_spec
from rl_training.config.searches.sweeps import RangeConfig, SweepConfig
from rl_training.config.searches.tuning import TuneConfig
from rl_training.hparams.schedules import Schedule
from rl_training.registry import algorithms

PAGE = Path(__file__).resolve().parents[1] / "docs" / "config-reference.md"
COMMAND = "python tools/config_reference.py"
REQUIRED = "required"

INTRODUCTION = f"""\
# Config reference

Every field of a config with its type, its default and what it does, written from the code by
`{COMMAND}`. How files, flags and `base:` work together is told in [Configs](config.md);
`rl config show ppo/cartpole` prints a whole config.

A field is written as `section: {{field: value}}` in a file and `--section.field value` on the command line.
"""

INSIDE = {
    "Wrappers": (WrapperConfig, "An element of `env.wrappers`; a plain name stands for `{name: ...}`."),
    "Parts": (PartConfig, "An element of `callbacks` and of `logging.sinks`; a plain name stands for `{name: ...}`."),
    "Schedules": (Schedule, "Where a hyperparameter takes a schedule, a number is a constant one."),
    "Sweep files": (
        SweepConfig,
        "A file of its own: a config to start from, and the values that its keys take; see [Sweeps](sweeps.md).",
    ),
    "Ranges": (RangeConfig, "An element of `ranges` in a sweep or tuning file."),
    "Alert rules": (AlertRuleConfig, "An element of `monitor.rules`; see [Alerts](monitoring.md)."),
    "Tuning files": (TuneConfig, "A file of its own for `rl tune`; see [Tuning](tuning.md)."),
}


def table(docs: list[FieldDoc]) -> list[str]:
    """Rows of a Markdown table; the sentence comes last because it is the longest."""
    rows = [f"| `{doc.path}` | {cell(doc.type)} | {code(doc.default)} | {cell(doc.doc)} |" for doc in docs]
    return ["| field | type | default | |", "|---|---|---|---|", *rows, ""]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def code(text: str) -> str:
    return text if text == REQUIRED else f"`{cell(text)}`"


def sentence(cls: type) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def section_classes(cls: type = TrainConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """("", TrainConfig), ("env", EnvConfig), ("network.actor", BackboneConfig), ... in the order of the tree."""
    yield prefix, cls
    for name, hint in hints_of(cls).items():
        inner = section_of(hint)
        if inner is hint and inner is not None:
            yield from section_classes(inner, f"{prefix}.{name}".lstrip("."))


def docs_of(cls: type) -> list[FieldDoc]:
    """The fields of a class that stands for itself, such as an element of a list."""
    sentences, hints = attribute_docs(cls), hints_of(cls)
    return [
        FieldDoc(item.name, describe(hints[item.name]), default_of(item), sentences.get(item.name, ""))
        for item in dataclasses.fields(cls)
    ]


def default_of(item: dataclasses.Field[Any]) -> str:
    if item.default_factory is not dataclasses.MISSING:
        return written(item.default_factory())
    return REQUIRED if item.default is dataclasses.MISSING else written(item.default)


def page() -> str:
    """The whole page."""
    fields = [doc for path, doc in field_docs().items() if not path.startswith("hparams")]
    lines = [INTRODUCTION]
    for section, cls in section_classes():
        inside = [doc for doc in fields if doc.path.rpartition(".")[0] == section]
        if inside:
            lines += [f"## {section or 'Top level'}", "", sentence(cls), "", *table(inside)]
    lines += ["## hparams", "", "The hyperparameters of the algorithm that `algo` names.", ""]
    for name, spec in ((name, builtin_spec(name)) for name in algorithms.names()):
        if spec is None:
            continue
        hparams = [doc for path, doc in field_docs(name).items() if path.startswith("hparams.")]
        lines += [f"### {name}", "", f"[{sentence(spec.hparams)}](algorithms/{name}.md)", "", *table(hparams)]
    for title, (cls, text) in INSIDE.items():
        lines += [f"## {title}", "", text, "", *table(docs_of(cls))]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
