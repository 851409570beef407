"""Scores beside Stable-Baselines3: the translation of settings, rows, the aggregate, the page. Nothing is trained."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.config.loading import config_to_mapping, parse_config

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
beside, pages, translation, windows = map(
    importlib.import_module, ("beside_sb3", "beside_sb3_page", "sb3_translation", "windows")
)


def mapping(**sections: Any) -> Any:
    return config_to_mapping(parse_config({"algo": "ppo", "env_id": "CartPole-v1", **sections}))


def test_every_task_is_expressible_and_has_its_budget() -> None:
    found = {name: beside.settings_of(name) for name in beside.TASKS}
    assert {name: one["total_timesteps"] for name, one in found.items()} == {
        "ppo_halfcheetah": 200_000,
        "td3_halfcheetah": 100_000,
        "sac_hopper": 100_000,
        "sac_cartpole_swingup": 50_000,
        "pong": 500_000,
    }
    assert [beside.TASKS[name].seeds for name in found] == [5, 3, 3, 3, 2]
    assert found["pong"]["network"] == {"encoder": "nature"}
    assert found["pong"]["environment"]["atari"]["clip_reward"]
    assert found["sac_cartpole_swingup"]["environment"]["flatten"]


def test_ppo_in_the_words_of_the_peer() -> None:
    cfg = mapping(
        env={"num_envs": 4, "normalize_obs": True},
        hparams={"num_steps": 64, "num_minibatches": 8, "vf_coef": 1.0, "max_grad_norm": None, "clip_vf": 0.3},
    )
    made = translation.translated(cfg)
    arguments = made["arguments"]
    assert (arguments["n_steps"], arguments["batch_size"], arguments["vf_coef"]) == (64, 32, 0.5)
    assert (arguments["max_grad_norm"], arguments["clip_range_vf"]) == (float("inf"), 0.3)
    assert made["environment"]["normalize"] == {"obs": True, "reward": False, "gamma": 0.99}
    assert made["network"]["actor"] == [64, 64]


def test_updates_per_step_become_a_frequency_and_a_number() -> None:
    for num_envs, rate, expected in ((1, 1.0, (1, 1)), (1, 0.25, (4, 1)), (8, 0.25, (1, 2)), (4, 0.125, (2, 1))):
        cfg = mapping(algo="sac", env_id="Pendulum-v1", env={"num_envs": num_envs}, hparams={"updates_per_step": rate})
        arguments = translation.translated(cfg)["arguments"]
        assert (arguments["train_freq"], arguments["gradient_steps"]) == expected


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"hparams": {"use_sde": True}}, "hparams.use_sde"),
        ({"hparams": {"grad_accumulation": 2}}, "hparams.grad_accumulation"),
        ({"hparams": {"ent_coef": {"type": "linear", "start": 0.1, "end": 0.0}}}, "hparams.ent_coef"),
        ({"hparams": {"num_minibatches": 3}}, "hparams.num_minibatches"),
        ({"algo": "sac", "env_id": "Pendulum-v1", "hparams": {"n_step": 3}}, "hparams.n_step"),
        ({"algo": "td3", "env_id": "Pendulum-v1", "hparams": {"max_grad_norm": 1.0}}, "hparams.max_grad_norm"),
        ({"network": {"actor": {"memory": "gru"}}}, "network.actor"),
        ({"network": {"shared": True}}, "network.shared"),
        ({"env": {"frame_stack": 4}}, "env.frame_stack"),
        ({"env": {"wrappers": ["clip_reward"]}}, "env.wrappers"),
    ],
)
def test_what_the_peer_cannot_express_is_refused_by_name(sections: Any, named: str) -> None:
    with pytest.raises(SystemExit, match=rf"{named}.* has no counterpart in Stable-Baselines3"):
        translation.translated(mapping(**sections))


def test_curves_are_means_over_windows() -> None:
    ended = [(10, 1.0), (50, 2.0), (60, 4.0), (100, 0.0), (104, 2.0)]
    assert windows.mean_per_window(ended, total=100, windows=2) == [[50, 1.5], [100, 2.0]]
    assert windows.mean_per_window([(90, 3.0)], total=100, windows=4) == [[100, 3.0]]
    assert windows.mean_per_window([], total=100, windows=4) == []


def row(task: str, side: str, seed: int, score: float) -> dict[str, Any]:
    settings = beside.fingerprint(beside.settings_of(task))
    return {
        "task": task, "side": side, "seed": seed, "settings": settings, "return_mean": score, "curve": [[100, score]]
    }  # fmt: skip


def all_rows(factor: float = 1.0) -> list[dict[str, Any]]:
    """The peer scores 100 and 200, ours `factor` times as much; in Pong 8 and 12 beside 10 and 12."""
    rows = []
    for name, task in beside.TASKS.items():
        for seed in range(task.seeds) if task.aggregated else ():
            score = 100.0 * (1 + seed % 2)
            rows += [row(name, "sb3", seed, score), row(name, "ours", seed, factor * score)]
    pong = [("ours", 0, 8.0), ("ours", 1, 12.0), ("sb3", 0, 10.0), ("sb3", 1, 12.0)]
    return rows + [row("pong", side, seed, score) for side, seed, score in pong]


def test_rows_are_appended_and_those_of_other_settings_are_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data" / "rows.jsonl"
    first, second = row("pong", "ours", 0, 1.0), row("pong", "sb3", 0, 2.0)
    beside.append(first, data)
    beside.append({**second, "settings": "of another day"}, data)
    assert len(beside.read_rows(data)) == 2
    assert beside.current_rows(beside.read_rows(data)) == [first]


def test_scores_are_divided_by_the_mean_of_the_peer() -> None:
    rows = all_rows(factor=1.2)
    assert pages.ratios(rows, "td3_halfcheetah") == pytest.approx(np.array([120, 240, 120]) / (400 / 3))
    interval, means = pages.aggregate(rows)
    assert means == pytest.approx(dict.fromkeys(means, 1.2))
    assert interval.low < interval.value < interval.high
    assert pages.aggregate([one for one in rows if one["task"] != "sac_hopper"]) is None


def test_verdicts_follow_the_goals() -> None:
    good, pong = pages.verdicts(all_rows(factor=1.2))
    assert good.endswith("no task is below 0.75: reached.")
    assert pong.endswith("the better seed at 10 or more: reached.")
    assert "mean 10.0 beside 11.0, the better seed 12.0" in pong
    bad, _ = pages.verdicts(all_rows(factor=0.7))
    assert bad.endswith("not reached.")
    assert pages.verdicts([]) == ["Not all runs are there yet."]


def test_the_section_shows_every_seed_and_what_was_not_run(tmp_path: Path) -> None:
    rows = [one for one in all_rows() if (one["task"], one["side"], one["seed"]) != ("sac_hopper", "sb3", 2)]
    text = "\n".join(pages.section(rows))
    assert "| `sac_hopper` | 100,000 | Stable-Baselines3 | 100.0 | 200.0 | not run |  |  | 150.0 |  |" in text
    assert "preset `ppo/pong_quick` with training.total_timesteps 500000" in text
    pages.draw(rows, tmp_path)
    assert (tmp_path / pages.PICTURE).stat().st_size > 1000
    assert pages.section([]) == []


def test_a_run_that_was_stopped_is_found_again(tmp_path: Path) -> None:
    assert beside.earlier(tmp_path) is None
    for name, status in (("a", "finished"), ("b", "stopped")):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps({"status": status}))
        assert (beside.earlier(tmp_path) or ("",))[0] != tmp_path / name, "nothing is saved yet"
        (tmp_path / name / "checkpoints" / "latest").write_text("step_000000000000")
        assert beside.earlier(tmp_path) == (tmp_path / name, status == "finished")
