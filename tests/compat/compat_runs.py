"""Old runs, and what today's code makes of them: unpack the old package, train with it, go on with today's, compare.

Both packages run in processes of their own that read and write nothing but run directories, as an upgrade on a user's
machine would have it: the same interpreter, the same key in the user's config folder, another `rl_training`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compat_cases import SAMPLE, WRITTEN, Case

import rl_training
from rl_training.checkpointing import CheckpointManager

HERE = Path(__file__).parent
ARCHIVE = HERE / "rl_training-0.1.0.tar.gz"
TODAY = Path(rl_training.__file__).parent.parent
"""The folder that today's package is imported from."""
CLOCK = ("time/", "system/")
"""What depends on the clock and the machine, and is no result."""
EPISODES = "2"
SECONDS = 900
"""More than the commands of any group take together."""
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""For the sample: XLA compiles in half of the time, for both packages alike. The slow groups run as users compile."""


@dataclass(frozen=True)
class Outcome:
    """How one `rl` command ended."""

    name: str
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed; it must have ended well."""
        assert self.code == 0, f"{self.name}: exit code {self.code}\n{self.err}"
        return json.loads(self.out)


# -- processes --------------------------------------------------------------------------------------------------------


def unpack(folder: Path) -> Path:
    """The old package, ready to be put on the path; the folder that holds it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def run_jobs(
    folder: Path, package: Path, shared: Path, jobs: Sequence[Mapping[str, Any]], **more: str
) -> dict[str, Outcome]:
    """Run `rl` commands in one process of the package in `package`; how each ended, by name.

    `folder` becomes the working directory and keeps what the process wrote. `shared` has the user's config and cache;
    `more` are further environment variables.
    """
    name = "old" if package != TODAY else "today"
    files = {kind: folder / f"{name}-{kind}.json" for kind in ("jobs", "outcomes")}
    files["jobs"].write_text(json.dumps(jobs))
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (package, HERE, folder / "modules"))),
        "XDG_CONFIG_HOME": str(shared / "config"),
        "XDG_CACHE_HOME": str(shared / "cache"),
        "RL_TRAINING_TRACEBACK": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **more,
    }
    command = [sys.executable, HERE / "compat_process.py", package, files["jobs"], files["outcomes"]]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=SECONDS)
    lines = files["outcomes"].read_text().splitlines() if files["outcomes"].exists() else []
    found = {outcome.name: outcome for outcome in (Outcome(**json.loads(line)) for line in lines)}
    if ended.returncode != 0:  # it never fails because a command does
        raise AssertionError(f"{name}: ended with {ended.returncode} after {list(found)[-1:]}\n{ended.stderr[-5000:]}")
    return found


# -- a group of runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """The runs of one group: whole ones of the old code, copies that today's code went on with, and what was said."""

    folder: Path
    old: Mapping[str, Outcome]
    today: Mapping[str, Outcome]

    def whole(self, case: Case) -> Path:
        """The run that the old code trained without a stop."""
        return run_named(self.folder / "whole", case.name)

    def resumed(self, case: Case) -> Path:
        """Its copy of the moment before its end, with which today's code went on."""
        return run_named(self.folder / "killed", case.name)

    def altered(self, case: Case) -> Path:
        """Such a copy whose middle checkpoint was changed before today's code went on with it."""
        return run_named(self.folder / "altered", case.name)


def play(name: str, cases: Sequence[Case], folder: Path, shared: Path, package: Path) -> Played:
    """Let the old code train the cases of a group, and today's code go on with copies of them and look at them."""
    for part in ("modules", "configs"):
        (folder / part).mkdir(parents=True)
    variables = QUICK if name in SAMPLE else {}
    old = run_jobs(folder, package, shared, [*writing(name, folder), *training(cases, folder)], **variables)
    for case in cases:
        outcome = old[f"train {case.name}"]
        assert outcome.code == 0, f"the old code cannot train {case.name}:\n{outcome.err}"
    if altered := control(cases):
        alter(folder, altered)
    today = run_jobs(folder, TODAY, shared, [*going_on(cases, folder), *looking(cases, folder)], **variables)
    return Played(folder, old, today)


def control(cases: Sequence[Case]) -> Case | None:
    """The case of a group whose checkpoint is altered: saving one again by hand is possible without a replay buffer."""
    return next((case for case in cases if not case.has_replay), None)


def writing(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Commands that write the modules of a group."""
    for words in WRITTEN.get(name, []):
        yield {"name": " ".join(words), "words": [*words, "--dir", str(folder / "modules")]}


def training(cases: Sequence[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Commands of the old code: train each run to its end, then look at it."""
    for case in cases:
        config = folder / "configs" / f"{case.name}.yaml"
        config.write_text(json.dumps(case.config))
        words = ["train", str(config), "--output-dir", str(folder / "whole")]
        copy = {"beyond": case.half, "to": str(folder / "killed")}
        yield {"name": f"train {case.name}", "words": words, "copy": copy}
        yield from evaluating(case, folder)
    yield {"name": "list", "words": ["list", "--json", "--output-dir", str(folder / "whole")]}


def evaluating(case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    """Play the policy of the end, and the best one with sampled actions."""
    words = ["eval", case.name, "--output-dir", str(folder / "whole"), "--episodes", EPISODES, "--json"]
    yield {"name": f"eval {case.name}", "words": words}
    yield {"name": f"sample {case.name}", "words": [*words, "--stochastic", "--checkpoint", "best"]}


def going_on(cases: Sequence[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Commands of today's code that continue the copies."""
    for case in cases:
        words = ["resume", case.name, "--json", "--output-dir"]
        yield {"name": f"resume {case.name}", "words": [*words, str(folder / "killed")]}
        if case is control(cases):
            yield {"name": f"resume altered {case.name}", "words": [*words, str(folder / "altered")]}


def looking(cases: Sequence[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Commands of today's code on the whole runs, which they leave as they are."""
    stranger = {"XDG_CONFIG_HOME": str(folder / "config of a stranger")}
    whole = str(folder / "whole")
    for case in cases:
        yield from evaluating(case, folder)
        if case.name.startswith("path-"):
            for job in list(evaluating(case, folder))[:1]:
                yield {**job, "name": f"stranger {case.name}", "variables": stranger}
        yield {"name": f"verify {case.name}", "words": ["verify", case.name, "--json", "--output-dir", whole]}
    yield {"name": "list", "words": ["list", "--json", "--output-dir", whole]}
    yield {"name": "rebuild", "words": ["index", "rebuild", "--output-dir", whole]}
    yield {"name": "list again", "words": ["list", "--json", "--output-dir", whole]}


def alter(folder: Path, case: Case) -> None:
    """Copy a run that was cut off, and move every weight of its newest policy by the smallest step there is."""
    run = run_named(folder / "killed", case.name)
    copy = folder / "altered" / run.name
    shutil.copytree(run, copy)
    manager = CheckpointManager(copy, keep_last=9)
    checkpoint = manager.load_latest()
    assert case.half <= checkpoint.step < case.total, f"the newest checkpoint of the copy is of step {checkpoint.step}"
    parts = {**checkpoint.parts, "policy": moved(checkpoint.parts["policy"])}
    manager.save(parts, step=checkpoint.step, metadata=checkpoint.metadata)


def moved(state: Any) -> Any:
    """A state with every float32 array one rounding step higher."""
    if isinstance(state, Mapping):
        return {name: moved(value) for name, value in state.items()}
    if isinstance(state, np.ndarray) and state.dtype == np.float32:
        return np.nextafter(state, np.float32(np.inf))
    return state


def run_named(folder: Path, name: str) -> Path:
    """The run of this name, found by its files alone."""
    records = {path.parent: json.loads(path.read_text()) for path in folder.glob("*/run.json")}
    (run,) = [run for run, record in records.items() if record["name"] == name]
    return run


# -- comparing --------------------------------------------------------------------------------------------------------


def differences(one: Path, other: Path) -> list[str]:
    """Where two finished runs differ: every leaf of every part of the last checkpoint but the positions in the logs,
    the last and the best step, and every row of the logs without what depends on the clock."""
    managers = [CheckpointManager(run, report=_refuse) for run in (one, other)]
    states = [manager.load_latest().parts for manager in managers]
    found = list(leaves(*({name: part for name, part in state.items() if name != "logs"} for state in states)))
    steps = [{"latest": manager.latest_step(), "best": manager.best_step()} for manager in managers]
    found += leaves(*steps, "step")
    for log in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl", "alerts.jsonl"):
        rows = [list(_rows(run / "logs" / log)) for run in (one, other)]
        if len(rows[0]) != len(rows[1]):
            found.append(f"{log}: {len(rows[0])} and {len(rows[1])} rows")
        for number, (row, again) in enumerate(zip(*rows, strict=False)):
            found += [f"{log} row {number}{place}" for place in leaves(row, again)]
    return found


def _refuse(line: str) -> None:
    raise AssertionError(f"a checkpoint was passed over: {line}")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        yield {name: value for name, value in json.loads(line).items() if not name.startswith(CLOCK)}


def leaves(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """The places at which two trees differ, in whatever bit it is."""
    one, other = (_as_arrays(value) for value in (one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            if key in one and key in other:
                yield from leaves(one[key], other[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: only in the {'first' if key in one else 'second'}"
    elif isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            yield f"{path}: {one.dtype}{one.shape} and {other.dtype}{other.shape}"
        elif one.tobytes() != other.tobytes():
            yield f"{path}: other numbers"
    elif type(one) is not type(other) or repr(one) != repr(other):  # in the words of Python every bit of a float counts
        yield f"{path}: {one!r:.80} and {other!r:.80}"


def _as_arrays(value: Any) -> Any:
    """The rows of a replay buffer, which a checkpoint keeps in files of its own, as arrays."""
    if hasattr(value, "arrays") and not isinstance(value, np.ndarray | Mapping):
        return {"start": value.start, "stop": value.stop, **value.arrays()}
    return value


# -- what every old run must pass -------------------------------------------------------------------------------------


def check_resumed(made: Played, case: Case) -> None:
    """Today's code went on from the middle to the end that the old code came to."""
    result = made.today[f"resume {case.name}"].json()
    assert result["metrics"]["env_steps"] >= case.total
    assert differences(made.whole(case), made.resumed(case)) == []


def check_verified(made: Played, case: Case) -> None:
    """Today's code trained the same run again from step 0: `rl verify` found no difference."""
    report = made.today[f"verify {case.name}"].json()
    assert report["reproduced"], report["differences"]
    assert report["env_steps"] >= case.total
    assert report["checkpoints"] >= 3
    assert report["rows"] > 0


def check_evaluated(made: Played, case: Case) -> None:
    """Today's code played the same episodes, with the last policy and with the best one."""
    for name in (f"eval {case.name}", f"sample {case.name}"):
        assert made.today[name].json() == made.old[name].json()


def check_listed(made: Played, cases: Sequence[Case]) -> None:
    """Today's code lists what the old code did: from the index that the old code wrote, and from one that it makes anew
    out of the run directories. There may be more columns now."""
    old = made.old["list"].json()
    assert {row["name"] for row in old} == {case.name for case in cases}
    assert {row["status"] for row in old} == {"finished"}
    for listing in ("list", "list again"):
        today = made.today[listing].json()
        assert [{name: row[name] for name in before} for row, before in zip(today, old, strict=True)] == old
