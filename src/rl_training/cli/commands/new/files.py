"""The files that `rl new` writes, from the templates beside this module."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from rl_training.cli.flags import argument, text
from rl_training.cli.output import bold, show
from rl_training.cli.parser import Command, UsageError

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    name: str = argument()
    backend: str | None = text(
        "what it is written in (default torch; an env: Gymnasium)", "NAME", choices=("torch", "jax")
    )
    dir: str | None = text("folder to write into, made if it is missing (default: this one)", "DIR")


def new_command(kind: str, summary: str) -> Command[NewOptions]:
    """The command `rl new KIND`."""
    return Command(
        name=f"new {kind}",
        summary=summary,
        usage="NAME [--backend torch|jax] [--dir DIR]",
        options=NewOptions,
        run=lambda options: write_start(kind, options),
        examples=(f"rl new {kind} my_{kind}", f"rl new {kind} my_{kind} --backend jax --dir ideas"),
        notes="Writes NAME.py, test_NAME.py and NAME.yaml, which work as they are. Nothing is overwritten. NAME is the "
        "name of a Python module, such as my_idea.",
    )


def write_start(kind: str, options: NewOptions) -> int:
    """Write module, test and config of a new part; returns the exit code."""
    name, folder = options.name, Path(options.dir or ".")
    check_spelling(name)
    files = files_of(f"jax_{kind}" if options.backend == "jax" else kind, name)
    taken = [file for file in files if (folder / file).exists()]
    if taken:
        raise UsageError(f"{folder / taken[0]} exists and is not overwritten; choose another name or --dir")
    check_free(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_text(content)
    show(f"wrote {', '.join(str(folder / file) for file in files)}\n\n{bold('next')}")
    go_there = [f"  cd {folder}"] if options.dir else []
    show("\n".join([*go_there, f"  pytest test_{name}.py", f"  rl train {name}.yaml"]))
    return 0


def files_of(start: str, name: str) -> dict[str, str]:
    """File names and their text, from the templates whose names begin with `start`."""
    ends = {f"{name}.py": "py", f"test_{name}.py": "test", f"{name}.yaml": "yaml"}
    names = {file: f"{start}.{end}.txt" for file, end in ends.items()}
    class_name = "".join(part.capitalize() for part in name.split("_"))
    return {
        file: Template((TEMPLATES / template).read_text()).substitute(name=name, class_name=class_name)
        for file, template in names.items()
    }


def check_spelling(name: str) -> None:
    """Refuse a name that a module cannot have."""
    if re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]|[a-z]", name) and not keyword.iskeyword(name):
        return
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    better = re.sub(r"[^a-z0-9]+", "_", words).strip("_").lstrip("0123456789_")
    better = f"my_{better}" if keyword.iskeyword(better) else better or "my_part"
    raise UsageError(
        f"'{name}' cannot be the name of a module: lower-case letters, digits and '_', beginning with a letter; "
        f"try '{better}'"
    )


def check_free(name: str) -> None:
    """Refuse the name of a module that exists: one of the two would hide the other."""
    found = importlib.util.find_spec(name)
    if found is not None or name in sys.stdlib_module_names:
        place = found.origin if found is not None and found.origin else "part of Python"
        better = f"{name}_2" if name.startswith("my_") else f"my_{name}"
        raise UsageError(f"'{name}' is the name of a module that exists already ({place}); try '{better}'")
