"""Hyperparameter files in the format of the SB3 Zoo, written by hand here, as configs of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import load_config, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.config.yaml_reader import read_yaml
from rl_training.config.zoo.importer import Imported, import_zoo
from rl_training.config.zoo.values import Name, literal
from rl_training.hparams.schedules import Schedule
from rl_training.types import ConfigError

PPO = """\
atari:
  policy: CnnPolicy
  env_wrapper: [stable_baselines3.common.atari_wrappers.AtariWrapper]
  frame_stack: 4
  n_envs: 8
  n_timesteps: !!float 1e7

CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 128
  gae_lambda: 0.8
  gamma: 0.98
  n_epochs: 20
  learning_rate: lin_0.001
  clip_range: 0.1

Hill-v0: &hill
  policy: MlpPolicy
  normalize: "{'norm_obs': True, 'norm_reward': False, 'clip_obs': 5}"
  n_timesteps: 20000
  use_sde: True
  sde_sample_freq: 4
  policy_kwargs: "dict(log_std_init=-2, ortho_init=False, activation_fn=nn.ReLU,
    net_arch=dict(pi=[32, 16], vf=[8]), optimizer_kwargs=dict(eps=1e-7))"

Hill-v1:
  <<: *hill
  normalize: true
"""


def read(folder: Path, name: str, text: str, env_id: str | None = None, algo: str | None = None) -> Imported:
    path = folder / name
    path.write_text(text)
    (found, *more), problems = import_zoo(path, env_id=env_id, algo=algo)
    assert (more, problems) == ([], [])
    return found


def config(item: Imported) -> TrainConfig:
    return parse_config(item.tree)


def test_ppo(tmp_path: Path) -> None:
    item = read(tmp_path, "ppo.yml", PPO, "CartPole-v1")
    cfg = config(item)
    assert (cfg.algo, cfg.env_id, cfg.env.num_envs, cfg.training.total_timesteps) == ("ppo", "CartPole-v1", 8, 100_000)
    hparams = cfg.hparams
    assert (hparams.num_steps, hparams.num_epochs, hparams.num_minibatches) == (32, 20, 2)
    assert (hparams.gamma, hparams.gae_lambda, hparams.clip_coef) == (0.98, 0.8, 0.1)
    assert hparams.learning_rate == Schedule("linear", 0.001, 0.0)
    assert hparams.vf_coef == 1.0, "half the squared error here, the whole there"
    assert item.dropped == {}
    assert "vf_coef is twice the Zoo's" in item.notes[0]


def test_a_network_and_normalisation_written_in_python(tmp_path: Path) -> None:
    item = read(tmp_path, "ppo.yml", PPO, "Hill-v0")
    cfg = config(item)
    assert (cfg.env.normalize_obs, cfg.env.normalize_reward) == (True, False)
    assert (cfg.network.actor.hidden_dims, cfg.network.critic.hidden_dims) == ((32, 16), (8,))
    assert cfg.network.actor.activation == "relu"
    hparams = cfg.hparams
    assert (hparams.log_std_init, hparams.use_sde, hparams.sde_sample_freq, hparams.adam_eps) == (-2, True, 4, 1e-7)
    assert (cfg.env.num_envs, hparams.num_steps, hparams.num_minibatches) == (1, 2048, 32), "defaults of SB3"
    assert list(item.dropped) == ["normalize.clip_obs", "policy_kwargs.ortho_init"]


def test_anchors_and_merges(tmp_path: Path) -> None:
    cfg = config(read(tmp_path, "ppo.yml", PPO, "Hill-v1"))
    assert (cfg.env.normalize_obs, cfg.env.normalize_reward, cfg.hparams.use_sde) == (True, True, True)


def test_the_entry_of_a_family(tmp_path: Path) -> None:
    item = read(tmp_path, "ppo.yml", PPO, "ALE/Pong-v5")
    assert (config(item).env_id, config(item).env.frame_stack) == ("ALE/Pong-v5", 4)
    wrapper = "env_wrapper stable_baselines3.common.atari_wrappers.AtariWrapper"
    assert list(item.dropped) == [wrapper, "policy"]
    cfg = config(read(tmp_path, "a2c.yml", "default: {n_timesteps: 100}\n", "Any-v0"))
    assert (cfg.algo, cfg.env_id, cfg.training.total_timesteps) == ("a2c", "Any-v0", 100)


def test_all_environments_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text(PPO + "Bad-v0: {n_timesteps: often}\nWorse-v0: 3\n")
    found, problems = import_zoo(path)
    assert [item.env_id for item in found] == ["CartPole-v1", "Hill-v0", "Hill-v1"]
    assert [problem.removeprefix(str(path)) for problem in problems] == [
        ":32: Bad-v0: 'n_timesteps': expected a number, got 'often'",
        ":33: Worse-v0: expected hyperparameters, lines of 'key: value', got 3",
    ]


def test_the_text_is_a_config_that_says_what_was_dropped(tmp_path: Path) -> None:
    item = read(tmp_path, "ppo.yml", PPO, "Hill-v0")
    (tmp_path / "mine.yaml").write_text(item.text())
    assert load_config(tmp_path / "mine.yaml") == config(item)
    assert "# Dropped policy_kwargs.ortho_init: weights start orthogonal" in item.text()
    assert read_yaml(item.text()) == item.tree


def test_a2c_learns_with_another_optimiser(tmp_path: Path) -> None:
    item = read(tmp_path, "a2c.yml", "X-v0: {n_steps: 8, ent_coef: 0.01, use_rms_prop: true}\n")
    assert (config(item).hparams.num_steps, config(item).hparams.gae_lambda) == (8, 1.0)
    assert item.dropped == {"use_rms_prop": "the optimiser is Adam"}
    assert any("RMSprop" in note for note in item.notes)


def test_dqn(tmp_path: Path) -> None:
    text = """\
CartPole-v1:
  n_timesteps: !!float 5e4
  policy: MlpPolicy
  learning_rate: !!float 2.3e-3
  batch_size: 64
  buffer_size: 100000
  learning_starts: 1000
  gamma: 0.99
  target_update_interval: 10
  train_freq: 256
  gradient_steps: 128
  exploration_fraction: 0.16
  exploration_final_eps: 0.04
  policy_kwargs: "dict(net_arch=[256, 256])"
"""
    cfg = config(read(tmp_path, "dqn.yml", text))
    hparams = cfg.hparams
    assert (hparams.updates_per_step, hparams.target_every_updates, hparams.double) == (0.5, 5, False)
    assert (hparams.epsilon_steps, hparams.epsilon_end, cfg.buffer.size) == (8000, 0.04, 100_000)
    assert cfg.network.critic.hidden_dims == (256, 256)


@pytest.mark.parametrize(
    ("given", "ratio", "dropped"),
    [
        ("train_freq: 1\n  gradient_steps: 1", 1.0, []),
        ("train_freq: 8\n  gradient_steps: 8", 1.0, []),
        ("train_freq: 8\n  gradient_steps: 4\n  n_envs: 2", 0.25, []),
        ("train_freq: 8\n  gradient_steps: -1\n  n_envs: 4", 1.0, []),
        ('train_freq: [1, "episode"]\n  gradient_steps: -1', 1.0, []),
        ("train_freq: \"(1, 'episode')\"\n  gradient_steps: -1", 1.0, []),
        ('train_freq: [4, "step"]\n  gradient_steps: 2', 0.5, []),
        ('train_freq: [1, "episode"]\n  gradient_steps: 1000', 1.0, ["train_freq"]),
    ],
)
def test_updates_per_step(given: str, ratio: float, dropped: list[str], tmp_path: Path) -> None:
    item = read(tmp_path, "sac.yml", f"Pendulum-v1:\n  policy: MlpPolicy\n  {given}\n")
    assert config(item).hparams.updates_per_step == ratio
    assert list(item.dropped) == dropped


@pytest.mark.parametrize(
    ("given", "alpha", "dropped"),
    [("'auto'", None, []), ("auto_0.1", None, ["ent_coef"]), ("0.005", 0.005, [])],
)
def test_the_temperature_of_sac(given: str, alpha: float | None, dropped: list[str], tmp_path: Path) -> None:
    item = read(tmp_path, "sac.yml", f"X-v0: {{ent_coef: {given}, use_sde: false, target_entropy: auto}}\n")
    assert config(item).hparams.alpha == alpha
    assert list(item.dropped) == dropped


def test_td3_and_ddpg(tmp_path: Path) -> None:
    text = "X-v0: {noise_type: normal, noise_std: 0.2, policy_delay: 3, buffer_size: 200000, learning_starts: 10000}\n"
    cfg = config(read(tmp_path, "td3.yml", text))
    assert (cfg.hparams.exploration_noise, cfg.hparams.actor_every_updates) == (0.2, 3)
    assert (cfg.network.actor.hidden_dims, cfg.hparams.learning_starts) == ((400, 300), 10_000)
    assert config(read(tmp_path, "td3.yml", "X-v0: {}\n")).hparams.exploration_noise == 0.0, "none unless asked for"
    item = read(tmp_path, "tuned.yml", "X-v0: {noise_type: ornstein-uhlenbeck, noise_std: 0.5}\n", algo="ddpg")
    assert (config(item).algo, config(item).hparams.exploration_noise) == ("ddpg", 0.5)
    assert list(item.dropped) == ["noise_type"]


def test_wrappers_and_arguments_of_the_environment(tmp_path: Path) -> None:
    text = """\
X-v0:
  env_wrapper:
    - gymnasium.wrappers.TimeAwareObservation
    - gym.wrappers.StickyAction: {repeat_action_probability: 0.25}
    - my_package.Wrapper
  env_kwargs: "dict(size=5, name='x')"
  callback: [rl_zoo3.callbacks.ParallelTrainCallback]
  brand_new_option: 3
"""
    item = read(tmp_path, "ppo.yml", text)
    assert [(part.name, dict(part.kwargs)) for part in config(item).env.wrappers] == [
        ("time_aware", {}),
        ("sticky_action", {"repeat_action_probability": 0.25}),
    ]
    assert config(item).env.kwargs == {"size": 5, "name": "x"}
    assert list(item.dropped) == ["env_wrapper my_package.Wrapper", "callback", "brand_new_option"]


def test_falling_clip_ranges_and_odd_batches(tmp_path: Path) -> None:
    item = read(tmp_path, "ppo.yml", "X-v0: {clip_range: lin_0.2, n_steps: 100, batch_size: 64}\n")
    assert config(item).hparams.clip_coef == Schedule("linear", 0.2, 0.002)
    assert config(item).hparams.num_minibatches == 2
    assert len(item.notes) == 3


@pytest.mark.parametrize(
    "text",
    [
        "dict(net_arch=__import__('os').system('exit 1'))",
        "dict(net_arch=[64 for _ in range(3)])",
        "dict(**{'a': 1})",
        "open('x')",
        "dict(net_arch=[10 ** 10 ** 10])",
        "lambda: 0",
        "(" * 3000,
        "-" * 1900 + "1",
        "f'{1}'",
    ],
)
def test_nothing_is_evaluated(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"literal|too long"):
        literal(text)
    item = read(tmp_path, "ppo.yml", f'X-v0:\n  policy_kwargs: "{text}"\n')
    assert list(item.dropped) == ["policy_kwargs"]
    assert config(item).network.actor.hidden_dims == (64, 64)


def test_literals() -> None:
    assert literal("dict(a=[1, -2.5], b={'c': None}, d=(True, 'x'), e=th.nn.Tanh)") == {
        "a": [1, -2.5],
        "b": {"c": None},
        "d": [True, "x"],
        "e": Name("th.nn.Tanh"),
    }
    assert (literal(3), literal("3")) == (3, 3)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("trpo.yml", "X-v0: {}", {}, r"cannot import 'trpo' \(known: ppo, .*\); the file's name does not say which"),
        ("x.yml", "X-v0: {}", {"algo": "sca"}, "cannot import 'sca'; did you mean 'sac'?"),
        ("ppo.yml", "", {}, "empty"),
        ("ppo.yml", "- 1", {}, "expected a mapping"),
        ("ppo.yml", "X-v0: {a: !!python/object:os.system 1}", {}, "tags are not allowed"),
        ("ppo.yml", "X-v0: [", {}, "not valid YAML"),
        ("ppo.yml", "CartPole-v1: {}", {"env_id": "CartPol-v1"}, "did you mean 'CartPole-v1'"),
        ("ppo.yml", "atari: {}", {}, "names no environment"),
        ("ppo.yml", "atari: {}", {"env_id": "atari"}, "no environment 'atari'"),
        ("ppo.yml", "X-v0: {learning_rate: fast}", {"env_id": "X-v0"}, ":1: X-v0: 'learning_rate': expected a number"),
        ("ppo.yml", "X-v0: {n_steps: 1.5}", {"env_id": "X-v0"}, "'n_steps': expected a whole number, got 1.5"),
        ("ppo.yml", "X-v0: {gamma: 2}", {"env_id": "X-v0"}, "'hparams.gamma' must be between 0 and 1"),
        ("ppo.yml", "X-v0: {batch_size: 0}", {"env_id": "X-v0"}, "'batch_size' must be at least 1"),
        ("ppo.yml", "X-v0: {normalize: [1]}", {"env_id": "X-v0"}, "'normalize': expected true, false or a mapping"),
        ("sac.yml", "X-v0: {train_freq: [1, moon]}", {"env_id": "X-v0"}, "'train_freq': expected steps"),
        ("sac.yml", "X-v0: {n_envs: 0}", {"env_id": "X-v0"}, "'n_envs' must be at least 1, not 0"),
    ],
)
def test_wrong_input(name: str, text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        import_zoo(tmp_path / name, **options)
