"""`rl completion`: the completion script of a shell."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.completion import SCRIPTS
from rl_training.cli.flags import argument
from rl_training.cli.parser import Command, UsageError, closest


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    shell: str = argument(values="shells")


def run(options: CompletionOptions) -> int:
    shell = options.shell
    if shell not in SCRIPTS:
        raise UsageError(f"no completion for '{shell}'{closest(shell, SCRIPTS)} (known: {', '.join(SCRIPTS)})")
    print(SCRIPTS[shell], end="")
    return 0


COMMAND = Command(
    name="completion",
    summary="print the completion script of a shell",
    usage="bash|zsh|fish",
    options=CompletionOptions,
    run=run,
    examples=(
        "source <(rl completion bash)                        # in ~/.bashrc",
        "source <(rl completion zsh)                         # in ~/.zshrc, after compinit",
        "rl completion fish > ~/.config/fish/completions/rl.fish",
    ),
)
