"""Commands about the policy of one run: which run, how its policy is loaded, and the result as text or JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

from rl_training.cli.output import print_json, show, stdout_for_the_result
from rl_training.cli.targets import find_one_run

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir

Result = TypeVar("Result", bound=dict[str, Any])


class Asked(Protocol):
    """Options that every such command has."""

    @property
    def run(self) -> str: ...
    @property
    def output_dir(self) -> str | None: ...
    @property
    def json(self) -> bool: ...


class LoadOptions(Protocol):
    """Options of a command that says how the policy is loaded."""

    @property
    def checkpoint(self) -> int | str: ...
    @property
    def trust_plugins(self) -> bool: ...
    @property
    def allow_changed_config(self) -> bool: ...


class Loading(TypedDict):
    """The same as arguments of `load`, `evaluate` and the like."""

    checkpoint: int | str
    trust_plugins: bool
    allow_changed_config: bool


def loading(options: LoadOptions) -> Loading:
    return Loading(
        checkpoint=options.checkpoint,
        trust_plugins=options.trust_plugins,
        allow_changed_config=options.allow_changed_config,
    )


def answer(command: str, options: Asked, work: Callable[[RunDir], Result], text: Callable[[Result], str]) -> int:
    """Find the run that was named, do the work, and print its result: as JSON, or as `text` puts it. Returns 0."""
    target = find_one_run(options.run, options.output_dir, command)
    with stdout_for_the_result(options.json):
        result = work(target)
    if options.json:
        print_json(result)
    else:
        show(text(result))
    return 0
