"""Compiled loop: a train step is a chunk of rollouts inside one XLA program. Evaluation and checkpoints are callbacks.

A chunk ends where something is due: the next evaluation, checkpoint or video, the end of the budget, and after about
half a second in any case, so that a signal or a NaN is acted upon. Its length changes nothing that is computed or
logged: each rollout has its own row, as in the host lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from rl_training.guards import part_suspects, search
from rl_training.jax.data.replay_buffer import SavedRing
from rl_training.jax.host import HostAlgorithm
from rl_training.jax.monitoring.faults import Faults, are_none, in_batch, in_learner
from rl_training.jax.pytrees import restored, tree_state
from rl_training.jax.training.driver import Driver, Loop, Record, root_key
from rl_training.jax.training.evaluation import Evaluation
from rl_training.jax.training.timetable import MAX_ROLLOUTS, WORD, timetable
from rl_training.numerics.agents import AGENT_RETURN, TEAM_RETURN
from rl_training.numerics.gsde import carry_like
from rl_training.training.collector import CollectStats, Episode
from rl_training.training.evaluation import EvalResult
from rl_training.training.host import prefixed, rollout_metrics
from rl_training.training.loop import Report, RunSettings, Trainer
from rl_training.types import Algorithm, Array, Metrics, StateDict, Stateful

CHUNK_SECONDS = 0.5


class Team(NamedTuple):
    """Several agents in each environment, which are rows of the program."""

    algorithm: Algorithm
    """What acts for all agents, is saved and evaluated; its only member is the agent that learns."""
    agents: tuple[str, ...]
    """Names of the agents, in the order of their rows."""


class Position:
    """State of the compiled environments, memory of the policy, and returns and lengths of the episodes in progress,
    one for each row of the program."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        num_envs = len(loop.is_first)
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)

    def advance(self, loop: Loop) -> None:
        """Take over the loop that a chunk returned; the one before it was donated to the program."""
        self.loop = loop

    def episodes(self, rewards: Array, terminated: Array, truncated: Array) -> list[Episode]:
        """Episodes that ended in a rollout (T, N), in the order in which they ended."""
        ended: list[Episode] = []
        num_steps, num_envs = rewards.shape
        columns = np.ascontiguousarray(rewards.T, np.float64)  # a sum over a row of these is quick
        begin: dict[int, int] = {}
        for place in np.flatnonzero(terminated | truncated).tolist():
            t, i = divmod(place, num_envs)
            total = self.returns[i] + columns[i, begin.get(i, 0) : t + 1].sum()
            ended.append(Episode(i, float(total), int(self.lengths[i]) + t + 1, bool(terminated[t, i])))
            self.returns[i], self.lengths[i], begin[i] = 0.0, -(t + 1), t + 1
        open_sums = columns.sum(1)
        for i, start in begin.items():
            open_sums[i] = columns[i, start:].sum()
        self.returns += open_sums
        self.lengths += num_steps
        return ended

    def state_dict(self) -> StateDict:
        loop = self.loop
        moving = {name: tree_state(getattr(loop, name)) for name in ("env", "carry", "is_first", "rollouts")}
        return {**moving, "returns": self.returns.copy(), "lengths": self.lengths.copy()}

    def load_state_dict(self, state: StateDict, /) -> None:
        names = ("env", "carry", "is_first", "rollouts")
        state = {**state, "carry": carry_like(self.loop.carry, state["carry"])}
        parts = {name: restored(getattr(self.loop, name), state[name], f"env/{name}") for name in names}
        self.loop = self.loop._replace(**parts)
        self.returns, self.lengths = np.array(state["returns"]), np.array(state["lengths"])


def of_teams(rows: Sequence[Episode], agents: Sequence[str]) -> list[Episode]:
    """Episodes of environments, from those of the rows of their agents, which end together."""
    found = []
    for first in range(0, len(rows), len(agents)):
        own = rows[first : first + len(agents)]
        returns = [episode.episode_return for episode in own]
        info = {TEAM_RETURN: sum(returns)}
        info |= {AGENT_RETURN + agent: value for agent, value in zip(agents, returns, strict=True)}
        mean, env = info[TEAM_RETURN] / len(agents), own[0].env_index // len(agents)
        found.append(Episode(env, mean, own[0].length, own[0].terminated, info))
    return found


class CompiledTrainer(Trainer):
    """Drives the chunks, which end at the multiples of each of `stops`. With `ahead`, programs are loaded or compiled
    in the background, from the construction of the trainer on. `evaluation` plays evaluations that are compiled too,
    and `team` is given where environments have several agents."""

    exact = True

    def __init__(
        self,
        agent: HostAlgorithm,
        driver: Driver,
        settings: RunSettings,
        *,
        stops: Sequence[int],
        ahead: bool,
        evaluation: Evaluation | None = None,
        team: Team | None = None,
    ) -> None:
        super().__init__(agent if team is None else team.algorithm, settings)
        self.agent = agent
        self.team = team
        self.driver = driver
        self.evaluation = evaluation
        self.stops = [every for every in stops if every > 0]
        self.num_steps = agent.functions.rollout_length
        if ahead:
            driver.prepare(agent.state, agent.key)
        self.position = Position(driver.start(agent.state, agent.key))
        self.num_agents = 1 if team is None else len(team.agents)
        self.num_envs = len(self.position.loop.is_first) // self.num_agents
        self.rollout_steps = self.num_steps * self.num_envs
        self.schedule = agent.functions.replay
        self.buffer = SavedRing(self.position, self.progress) if self.schedule is not None else None
        """The replay ring of an off-policy algorithm, as checkpoints store it."""
        self.pace = 1
        """Number of rollouts that take about CHUNK_SECONDS."""
        if driver.together is not None:
            driver.together.join()

    def train_step(self) -> Metrics:
        count, done = self.rollouts_ahead(), self.progress.env_steps
        began = perf_counter()
        with self.clock.measure("compiled"):
            loop = self.position.loop._replace(learner=self.agent.state)
            if (number := done // self.rollout_steps + 1) >= WORD:
                loop = loop._replace(key=root_key(self.agent.seed, number))
            times = timetable(self.agent.functions, self.num_envs, done, count)
            loop, record = self.driver.chunk(loop, np.int32(count), times)
            self.position.advance(loop)
            self.agent.state = self.position.loop.learner
        count = (int(self.position.loop.rollouts) - done // self.rollout_steps) % WORD
        self._set_pace(count, perf_counter() - began)
        self.history = self._reports(count, record)
        self._check(record.faults)
        self.episodes = [episode for report in self.history for episode in report.episodes]
        return self.history[-1].metrics

    def evaluate(self, *, episodes: int, first: int = 0) -> EvalResult:
        """Play greedy episodes on the JAX environment."""
        assert self.evaluation is not None, "asked for by training.eval_lane"
        agent = self.agent
        returns, lengths = self.evaluation(agent.state, self.progress.env_steps, agent.seed, episodes, first)
        judged = {} if self.team is None else {TEAM_RETURN: returns * self.num_agents}
        return EvalResult(returns, lengths, successes=np.full(len(returns), np.nan), judged=judged)

    def rollouts_ahead(self) -> int:
        """The number of rollouts in the next chunk."""
        done, rollout = self.progress.env_steps, self.rollout_steps
        if self.total_episodes is not None:
            return 1  # episodes are counted on the host
        ways = [every - done % every for every in self.stops]
        ways.append((WORD - (done // rollout + 1) % WORD) * rollout)  # rollouts of a chunk share one key
        if self.total_timesteps > done:
            ways.append(self.total_timesteps - done)
        return min(self.pace, *(-(-way // rollout) for way in ways))

    def _set_pace(self, count: int, seconds: float) -> None:
        """Adapt the length of chunks: from one rollout, whose time includes compilation, up to eightfold each time."""
        wanted = int(count * CHUNK_SECONDS / max(seconds, 1e-6))
        self.pace = max(1, min(wanted if self.progress.updates else 8, 8 * self.pace, MAX_ROLLOUTS))

    def _reports(self, count: int, record: Record) -> list[Report]:
        """Report what each rollout of a chunk did; moves `progress`."""
        columns = {name: np.asarray(column)[:count].tolist() for name, column in record.metrics.items()}
        rewards, terminated, truncated = map(np.asarray, record[1:4])
        updates = np.asarray(record.updates)[:count].tolist()
        reports = []
        for k in range(count):
            before = self.progress.copy()
            episodes = self.position.episodes(rewards[k], terminated[k], truncated[k])
            if self.team is not None:
                episodes = of_teams(episodes, self.team.agents)
            learnt = {name: column[k] for name, column in columns.items()} if updates[k] else {}
            self.progress.advance(env_steps=self.rollout_steps, updates=updates[k], episodes=len(episodes))
            agent_steps = 0 if self.team is None else self.num_agents * self.progress.env_steps
            stats = CollectStats(self.rollout_steps, episodes, agent_steps=agent_steps)
            metrics = prefixed("train/", learnt) | rollout_metrics(stats)
            if self.buffer is not None:
                metrics["buffer/size"] = min(self.progress.env_steps, self.buffer.capacity)
            reports.append(Report(before, self.progress.copy(), metrics, episodes))
        return reports

    def _check(self, faults: Faults) -> None:
        """Stop at the first update of a chunk with a NaN or Inf; the error names the tensor."""
        if self.guard.level == "off" or are_none(faults):
            return
        for k, report in enumerate(self.history):
            if found := in_batch(faults, k, self.num_envs, self.num_agents):
                raise self.guard.error(found, report.before)
            self.guard.check_update(report.metrics, tuple, tuple, report.before)
            if found := search(part_suspects(self.agent.named(in_learner(faults, k, self.agent.state)))):
                raise self.guard.error(found, report.before)

    def parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "env": self.position,
            "progress": self.progress,
        }
        return parts if self.buffer is None else {**parts, "buffer": self.buffer}

    def close(self) -> None:
        """Leave the runs that share a program with this one; there is nothing else to release."""
        if self.driver.together is not None:
            self.driver.together.leave()
