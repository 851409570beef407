"""Scores of the presets for several agents: teams on simple_spread, and games against the players of their pages.

By hand; resumable, since a finished run is a line of docs/data/team_scores.jsonl, from which `team_page.py` makes a
section of docs/scores.md, and a run that was broken off goes on where it was:

    python benchmarks/team_scores.py --presets ippo/simple_spread,mappo/simple_spread --seeds 0,1,2,3,4
    python benchmarks/team_scores.py --presets ippo/simple_spread --backend jax
    python benchmarks/team_scores.py --page             # only the page again

A team's score is the mean return per agent of its final greedy policy over 200 episodes; on simple_spread beside random
actions and the best assignment in the same episodes (`simple_spread.py`), elsewhere beside random actions. A game's is
500 games from each seat, greedy, against each opponent.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scores import ROOT, rewrite_page, run_json
from simple_spread import Assigned, play, random_actions
from team_page import DATA, GAMES, SPREAD, read_rows, section

from rl_training import evaluate, train
from rl_training.config.loading import config_to_mapping, load_config

FOLDER = ROOT / "runs" / "team_scores"
TEAMS = (*SPREAD, "mappo/simple_reference", "ippo/simple_tag", "ippo/lbf")
EPISODES, EPISODES_OF_GAMES = 200, 1000
"""Of a team, and against each opponent of a game, half of them from each seat."""


def trained(preset: str, backend: str, seed: int, folder: Path) -> Path:
    """The finished run of a preset, which goes on where it was broken off."""
    place = folder / preset.replace("/", "_") / backend / f"seed{seed}"
    words = ["--seed", str(seed), "--output-dir", str(place), "--auto-resume", "--backend", backend]
    return Path(run_json("train", preset, *words)["run"])


def spread_score(run: Path) -> dict[str, Any]:
    """Where the greedy policy of a run is between random actions and the best assignment."""
    low, high = play(lambda: random_actions, EPISODES, 0).mean(), play(Assigned, EPISODES, 0).mean()
    found = returns_of(run)
    return {**found, "share": float((found["return_mean"] - low) / (high - low))}


def team_score(run: Path, preset: str) -> dict[str, Any]:
    """The greedy policy of a run beside random actions."""
    config = config_to_mapping(load_config(preset))
    with TemporaryDirectory() as folder:
        cfg = {"algo": "random", "env_id": config["env_id"], "env": config["env"], "output_dir": folder}
        cfg |= {"training": {"total_timesteps": 1, "num_eval_episodes": 0}, "logging": {"terminal": False}}
        random = returns_of(train(cfg).run_dir)["return_mean"]
    return {**returns_of(run), "random_mean": random}


def returns_of(run: Path) -> dict[str, float]:
    """Mean return of the last policy, and its standard error."""
    returns = np.array(evaluate(run, episodes=EPISODES, seed=0)["returns"])
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    return {"return_mean": float(returns.mean()), "standard_error": float(error)}


def game_score(run: Path, opponents: tuple[str, ...]) -> dict[str, Any]:
    """Wins, draws and losses of the greedy policy from each seat against each opponent."""
    found: dict[str, Any] = {"matches": {}}
    for opponent in opponents:
        match = evaluate(run, episodes=EPISODES_OF_GAMES, opponent=opponent)
        seats = {name: [tally[key] for key in ("wins", "draws", "losses")] for name, tally in match["seats"].items()}
        found["matches"][opponent] = seats
        if "exploitability" in match:
            found["exploitability"] = match["exploitability"]
    return found


def row_of(preset: str, backend: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one seed of a preset, or go on with it, and play."""
    run = trained(preset, backend, seed, folder)
    last = json.loads((run / "logs" / "metrics.jsonl").read_text().splitlines()[-1])
    if preset in GAMES:
        found = game_score(run, GAMES[preset])
    else:
        found = spread_score(run) if preset in SPREAD else team_score(run, preset)
    curve = [json.loads(line) for line in (run / "logs" / "evals.jsonl").read_text().splitlines()]
    return {
        "preset": preset,
        "backend": backend,
        "seed": seed,
        "env_steps": last["env_steps"],
        "seconds": round(last["time/elapsed_seconds"]),
        "curve": [[row["env_steps"], round(row["return_mean"], 3)] for row in curve],
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join([*TEAMS, *GAMES]), help="comma-separated; by default all")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch", help="pqn_vdn is always jax")
    parser.add_argument("--output-dir", default=str(FOLDER), help="where the runs are kept")
    parser.add_argument("--page", action="store_true", help="train nothing, only write the page again")
    given = parser.parse_args()
    for preset in [] if given.page else given.presets.split(","):
        backend = "jax" if preset.startswith("pqn_vdn/") else given.backend
        for seed in map(int, given.seeds.split(",")):
            if any((row["preset"], row["backend"], row["seed"]) == (preset, backend, seed) for row in read_rows()):
                continue
            row = row_of(preset, backend, seed, Path(given.output_dir))
            with DATA.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rewrite_page()
    print("\n".join(section(read_rows())))


if __name__ == "__main__":
    main()
