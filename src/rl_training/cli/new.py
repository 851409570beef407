"""`rl new`: a working start for an algorithm, a network or an environment of your own, with its test and config."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from string import Template

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, show

TEMPLATES = Path(__file__).parent / "templates"


def new_command(arguments: Arguments) -> int:
    kind, name = arguments.words[2], arguments.positional[0]
    folder = Path(arguments.text("dir") or ".")
    check_spelling(name)
    files = files_of(f"jax_{kind}" if arguments.text("backend") == "jax" else kind, name)
    taken = [file for file in files if (folder / file).exists()]
    if taken:
        raise UsageError(f"{folder / taken[0]} exists and is not overwritten; choose another name or --dir")
    check_free(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    show(f"wrote {', '.join(str(folder / file) for file in files)}\n\n{bold('next')}")
    go_there = [f"  cd {folder}"] if arguments.text("dir") else []
    show("\n".join([*go_there, f"  pytest test_{name}.py", f"  rl train {name}.yaml"]))
    return 0


def files_of(start: str, name: str) -> dict[str, str]:
    """File names and their text, from the templates called `start`."""
    ends = {f"{name}.py": "py", f"test_{name}.py": "test", f"{name}.yaml": "yaml"}
    names = {file: f"{start}.{end}.txt" for file, end in ends.items()}
    class_name = "".join(part.capitalize() for part in name.split("_"))
    return {
        file: Template((TEMPLATES / template).read_text()).substitute(name=name, class_name=class_name)
        for file, template in names.items()
    }


def check_spelling(name: str) -> None:
    """Refuse what is no good name of a module."""
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
    """Refuse the name of a module that is there already: one of the two would hide the other."""
    found = importlib.util.find_spec(name)
    if found is not None or name in sys.stdlib_module_names:
        place = found.origin if found is not None and found.origin else "part of Python"
        better = f"{name}_2" if name.startswith("my_") else f"my_{name}"
        raise UsageError(f"'{name}' is the name of a module that is there already ({place}); try '{better}'")
