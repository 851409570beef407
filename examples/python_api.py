# %% [markdown]
# # rl_training from Python
# The same train, load and evaluate as on the command line. Each `# %%` is a cell: open the file in VS Code or Jupyter
# (jupytext), or run it as a script.

# %% Train: a preset, with whatever should be different
import sys
import tempfile

import gymnasium as gym

import rl_training
from rl_training.config.loading import load_config

steps = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 30_000
config = load_config(
    "ppo/cartpole",
    {"total_timesteps": steps, "output_dir": tempfile.mkdtemp(), "logging.terminal": False, "seed": 1},
)
result = rl_training.train(config)
print(f"{result.stop_reason} after {result.metrics['env_steps']} steps in {result.run_dir.name}")

# %% Evaluate: 20 greedy episodes on evaluation seeds
scores = rl_training.evaluate(result.run_dir, episodes=20)
print(f"return {scores['return_mean']:.1f} +- {scores['return_std']:.1f}")

# %% Act: load the policy and play an episode by hand
policy = rl_training.load(result.run_dir)
env = gym.make("CartPole-v1")
obs, _ = env.reset(seed=0)
total, done = 0.0, False
while not done:
    obs, reward, terminated, truncated, _ = env.step(policy.predict(obs))
    total += float(reward)
    done = terminated or truncated
print(f"one episode by hand: {total:.0f}")

# %% Go on: the same run, longer
longer = rl_training.resume(result.run_dir, total_timesteps=2 * steps)
print(f"now at {longer.metrics['env_steps']} steps")


# %% Your own environment: a function that makes one is enough
class Corridor(gym.Env):
    """Walk right five times."""

    observation_space = gym.spaces.Box(0, 5, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = 0
        return self._obs(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        return self._obs(), -0.1, self.position == 5, False, {}

    def _obs(self):
        return self.observation_space.low + self.position


own = rl_training.train(
    {
        "algo": "ppo",
        "env_id": "Corridor",
        "output_dir": tempfile.mkdtemp(),
        "env": {"max_episode_steps": 50},
        "hparams": {"num_steps": 64, "learning_rate": 3e-3},
        "training": {"total_timesteps": 8_000},
        "logging": {"terminal": False},
    },
    env_fn=Corridor,
)
print(f"corridor: {own.metrics['eval/return_mean']:.2f} (the best is -0.50)")
