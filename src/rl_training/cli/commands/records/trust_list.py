"""`rl trust list`: the agreements to run the code of runs that were not made here."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rl_training.cli.flags import json_flag
from rl_training.cli.output import note, print_json, printable, show, table
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class TrustListOptions:
    json: bool = json_flag()


def run(options: TrustListOptions) -> int:
    from rl_training.trust import seals

    consents = seals.remembered()
    if options.json:
        print_json([asdict(entry) for entry in consents])
    elif consents:
        rows = [
            [printable(part) for part in (entry.id, entry.given, ", ".join(entry.code) or "-")] for entry in consents
        ]
        show(table(["id", "agreed", "to"], rows))
    else:
        note("you have not agreed to the code of any run made elsewhere")
    return 0


COMMAND = Command(
    name="trust list",
    summary="list the runs of others whose code you have agreed to",
    usage="[--json]",
    options=TrustListOptions,
    run=run,
    examples=("rl trust list",),
    notes="Runs that were made here need no consent: they carry a seal, made with the key in your config directory "
    "(~/.config/rl_training/trust.key) or in RL_TRAINING_TRUST_KEY, which your machines may share.",
)
