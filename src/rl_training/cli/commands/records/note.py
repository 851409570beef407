"""`rl note`: write notes about runs, or show them."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.flags import argument, arguments, json_flag, output_dir_flag, switch
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target, runs_of


@dataclass(frozen=True, kw_only=True)
class NoteOptions:
    target: str = argument(values="runs")
    text: tuple[str, ...] = arguments()
    append: bool = switch("add the text as a further line instead of replacing the notes")
    clear: bool = switch("remove the notes")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: NoteOptions) -> int:
    from rl_training.experiments.keeping.tracker import set_notes
    from rl_training.runs.directory import RunDir
    from rl_training.runs.index import record

    if options.clear and (options.text or options.append):
        raise UsageError("'rl note --clear' removes the notes; leave the text and --append out")
    target, text, noted = find_target(options.target, options.output_dir), " ".join(options.text), {}
    for found in runs_of(target):
        before = found.info().get("notes") or ""
        if options.text or options.clear:
            noted[found.path] = set_notes(found, f"{before}\n{text}" if options.append else text)
            record(found.path)
        else:
            noted[found.path] = before or None
    if options.json:
        records = [{"run": path, "notes": now} for path, now in noted.items()]
        print_json(records[0] if isinstance(target, RunDir) else {"path": target.path.absolute(), "runs": records})
        return 0
    for path, now in noted.items():
        show(f"{path.name}: {now or 'no notes'}")
    return 0


COMMAND = Command(
    name="note",
    summary="write notes about a run or all runs of a group, or show them",
    usage="RUN|GROUP|SWEEP [TEXT...] [flags]",
    options=NoteOptions,
    run=run,
    examples=("rl note latest entropy collapsed at 40k, try ent_coef 0.02", "rl note latest", "rl note latest --clear"),
    notes=f"{RUN_NAMES} {GROUP_NAMES} 'rl list notes~entropy' finds runs by their notes.",
)
