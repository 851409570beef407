"""Dreams of a run: metrics and files while it trains, `load(run).dream`, `rl dream`, and the HTML report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rl_training
from rl_training.cli.commands.runs.dream import errors_of
from rl_training.config.loading import parse_config
from rl_training.numerics.symlog import symexp
from rl_training.training.dreams import longest_alone
from rl_training.types import ConfigError, Dream, ObservationError

WIDTHS = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 3, "units": 8, "layers": 1, "depth": 1, "bins": 5}


def config(output_dir: Path, **sections: Any) -> Any:
    hparams = {"size": "custom", "custom": WIDTHS, "batch_size": 2, "sequence_length": 4, "train_ratio": 1}
    mapping: dict[str, Any] = {
        "algo": "dreamer",
        "env_id": "RLProbe/Catch-v0",
        "output_dir": str(output_dir),
        "hparams": {**hparams, "learning_starts": 32, "imagine_horizon": 2},
        "training": {"total_timesteps": 512, "eval_frequency": 256, "num_eval_episodes": 1},
        "logging": {"terminal": False, "video_frequency": 512},
        "buffer": {"size": 1000},
    }
    return parse_config({**mapping, **sections})


@pytest.fixture(scope="module", params=["vector", "pixels"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    kind = str(request.param)
    cfg = config(tmp_path_factory.mktemp("runs"), env={"kwargs": {"obs": kind}})
    return kind, Path(rl_training.train(cfg).run_dir)


def test_a_run_logs_errors_and_keeps_pictures(run: tuple[str, Path]) -> None:
    kind, path = run
    rows = [json.loads(line) for line in (path / "logs/metrics.jsonl").read_text().splitlines()]
    found = [row for row in rows if "model/open_loop_error_1" in row]
    assert [row["env_steps"] for row in found] == [256, 512]
    assert all(0.0 < row["model/open_loop_error_1"] < 1.0 for row in found)
    assert "model/open_loop_error_5" in found[-1]
    assert "model/open_loop_error_15" not in found[-1], "an episode of Catch has ten observations"
    picture = "videos/dream_000000000512.mp4" if kind == "pixels" else "plots/dream_000000000512_obs.svg"
    assert (path / picture).stat().st_size > 0


def test_a_loaded_policy_dreams(run: tuple[str, Path]) -> None:
    kind, path = run
    policy = rl_training.load(path)
    space = policy.observation_space
    obs = np.zeros((2, *space.shape), space.dtype)  # type: ignore[union-attr]
    dream = policy.dream(obs, [0, 1, 2, 2], samples=3)
    shape = (3, 5, 32, 32, 1) if kind == "pixels" else (3, 5, 50)
    assert dream.predicted["obs"].shape == shape
    assert dream.context == 2
    again = policy.dream(obs, [0, 1, 2, 2], samples=3)
    assert np.array_equal(dream.predicted["obs"], again.predicted["obs"])
    with pytest.raises(ConfigError, match=r"give one as obs\[None\]"):
        policy.dream(obs[0], [0])


def test_what_no_dream_can_be_of_is_refused_in_one_sentence(run: tuple[str, Path]) -> None:
    policy = rl_training.load(run[1])
    space = policy.observation_space
    obs = np.zeros((2, *space.shape), space.dtype)  # type: ignore[union-attr]
    for actions, message in (
        ([0, 7], r"whole numbers from 0 to 2 in an action .*, got 7"),
        ([0.5, 1], r"whole numbers from 0 to 2 in an action .*, got 0\.5"),
        ([[0], [1]], r"expected an action of shape \(\), or a batch"),
        (1, "expected a sequence of actions"),
        ([], "2 observations have 1 actions between them, but there are 0"),
    ):
        with pytest.raises((ObservationError, ConfigError), match=message):
            policy.dream(obs, actions)
    with pytest.raises(ConfigError, match="context must be between 1 and the 2 observations that are given, not 0"):
        policy.dream(obs, [0, 1], context=0)
    with pytest.raises(ConfigError, match="samples must be at least 1, not 0"):
        policy.dream(obs, [0, 1], samples=0)
    assert policy.dream(obs[:1], []).rewards.shape == (16, 1), "a reconstruction of one observation"


def test_rl_dream_writes_what_it_says(
    run: tuple[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from rl_training.cli import main

    kind, path = run
    assert main(["dream", str(path), "--json", "--context", "3", "--steps", "4", "--out", str(tmp_path / "out")]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["context"], record["steps"], record["env_steps"]) == (3, 4, 512)
    assert set(record["errors"]) == {"1"}
    assert all(Path(file).stat().st_size > 0 for file in record["files"])
    assert [Path(file).suffix for file in record["files"]] == [".mp4" if kind == "pixels" else ".svg"]


def test_an_episode_that_ends_before_the_model_is_alone_is_no_dream(
    run: tuple[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from rl_training.cli import main

    assert main(["dream", str(run[1]), "--context", "50", "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "the episode ended after 9 steps" in message
    assert "give a context of less than 10 observations, not 50" in message
    assert not (tmp_path / "out").exists()


def test_errors_of_a_dream_are_in_the_units_of_eval() -> None:
    """Symlog of vectors, images as they are; the mean of the samples is the prediction."""
    speed = symexp(np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 5.0]]))[:, :, None]  # 2 samples of 3 steps
    true = {"speed": symexp(np.array([1.0, 3.0, 2.0]))[:, None], "camera": np.zeros((3, 1, 1, 1))}
    predicted = {"speed": speed, "camera": np.full((2, 3, 1, 1, 1), 0.5)}
    found = errors_of(Dream(predicted, np.zeros((2, 3)), np.ones((2, 3)), 1, true, ("camera",)))
    assert found == {"1": pytest.approx(np.sqrt((0.0 + 0.25) / 2))}


def test_a_picture_is_of_the_sequence_that_goes_on_longest_and_ends_with_its_episode() -> None:
    """Each start of an episode takes two arrivals, so what follows it comes one step later."""
    first = np.zeros((4, 8), bool)
    first[0, 4] = True  # arrivals 0 to 3, a new episode at 4
    first[1, [1, 6]] = True  # episodes from arrivals 1 and 7 on
    first[2, 3] = True
    first[3, [0, 5]] = True  # from arrivals 0 and 6
    nothing = np.zeros((4, 8), np.float32)
    batch = {
        "obs": {"x": nothing}, "next_obs": {"x": nothing}, "actions": nothing, "rewards": np.arange(32.0).reshape(4, 8),
        "terminated": first & False, "truncated": first & False, "is_first": first, "valid": np.ones((4, 8), bool),
        "carry": {"deter": np.arange(4.0)},
    }  # fmt: skip
    chosen, steps = longest_alone(batch, 2)
    assert steps == 5, "arrivals 2 to 6 of the second sequence"
    assert chosen["rewards"].tolist() == batch["rewards"][1:2].tolist()
    assert (chosen["carry"]["deter"].tolist(), chosen["obs"]["x"].shape) == ([1.0], (1, 8))
    whole = Dream({"x": np.zeros((3, 8, 1))}, np.zeros((3, 8)), np.zeros((3, 8)), 2, {"x": np.zeros((8, 1))})
    shown = whole.until(2 + steps)
    assert (shown.predicted["x"].shape, shown.rewards.shape, shown.true["x"].shape) == ((3, 7, 1), (3, 7), (7, 1))


def test_the_report_shows_the_latest_dream(run: tuple[str, Path], tmp_path: Path) -> None:
    from rl_training.cli import main

    kind, path = run
    page = tmp_path / "report.html"
    assert main(["compare", str(path), "--html", str(page)]) == 0
    text = page.read_text()
    assert ("data:video/mp4;base64," in text) is (kind == "pixels")
    assert ("data:image/svg+xml;base64," in text) is (kind == "vector")
    assert f"dream of {path.name}: dream_000000000512" in text


def test_a_run_without_a_world_model_says_so(tmp_path: Path) -> None:
    cfg = parse_config({
        "algo": "random", "env_id": "CartPole-v1", "output_dir": str(tmp_path), "logging": {"terminal": False},
        "training": {"total_timesteps": 128, "num_eval_episodes": 0},
    })  # fmt: skip
    policy = rl_training.load(rl_training.train(cfg).run_dir)
    with pytest.raises(ConfigError, match=r"a run of 'random' has no world model .* or dynamics with rssm"):
        policy.dream(np.zeros((1, 4), np.float32), [])


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """The weights of a run with pictures and errors are those of one without."""
    weights = []
    for name, logging, episodes in (("with", 256, 1), ("without", 0, 0)):
        sections = {"logging": {"terminal": False, "video_frequency": logging}}
        training = {"total_timesteps": 300, "eval_frequency": 128, "num_eval_episodes": episodes}
        result = rl_training.train(config(tmp_path / name, **sections, training=training))
        state = rl_training.load(result.run_dir).policy.state_dict()
        weights.append(state["network"]["actor"])
    for key, value in weights[0].items():
        assert np.array_equal(value, weights[1][key]), key
