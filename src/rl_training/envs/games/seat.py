"""`Seat`: a game as an ordinary environment of one agent. The learner takes one seat, opponents inside take the others.

A step plays the learner's move and then those of the others, until it is the learner's turn again or its game is over;
the reward is what came between. So a transition goes from a turn of a player to its own next turn.

Seat and opponents of a game are drawn from the seed of its reset. Moves of opponents are part of the saved episode: a
replay repeats them instead of asking players whose weights may have changed since.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.games.players import Lineup, Player, RulePlayer, mask_of, only
from rl_training.envs.games.turns import TurnTaking, check_turns
from rl_training.envs.spaces import Space, convert_observation_space
from rl_training.seeding import generator_state, set_generator_state, stream
from rl_training.types import ACTION_MASK, Carry, EnvError, Obs, StateDict

SEATS = "seats"
"""Key of `metadata` that says who plays a game; only games have it."""
MOST_TRIES = 1000
"""Games that are started in the hope that one lets the learner have a turn."""
RESULT = "result"
"""Info of a game's last step: 1 for a win, 0.5 for a draw, 0 for a loss."""


@dataclass
class Opponent:
    """Who sits in another seat in the game that is being played."""

    name: str
    player: Player
    carry: Carry
    is_rated: bool = True
    """False after the opponent was replaced within the game."""


@dataclass(frozen=True)
class GameResult:
    """A finished game, as the learner sees it."""

    seat: int
    """Number of the learner's seat in the order of turns."""
    score: float
    """1 where the learner earned more than everybody else, 0.5 where as much as the best of them, 0 otherwise."""
    against: tuple[tuple[str, float], ...]
    """Opponents whose game is rated, each with 1, 0.5 or 0: whether the learner earned more than it, the same, less."""


class Seat(gym.Env[Any, Any]):
    """One seat of a game. `name` is for messages; without a lineup, all opponents move at random."""

    def __init__(self, game: Any, name: str = "") -> None:
        self.name = name or type(game).__name__
        self.game: TurnTaking = check_turns(game, self.name)
        self.agents = tuple(self.game.possible_agents)
        if len(self.agents) < 2:
            raise EnvError(f"game '{self.name}' has {len(self.agents)} agents; a game has at least two")
        if len(set(self.agents)) < len(self.agents) or not all(isinstance(agent, str) for agent in self.agents):
            raise EnvError(f"possible_agents of game '{self.name}' must be different strings, not {list(self.agents)}")
        self.metadata = {**game.metadata, SEATS: self.agents}
        self.render_mode = getattr(game, "render_mode", None)
        self.action_space = self._actions()
        self.observation_space, self._convert, self._mask_in_info = self._observations()
        self.seats = self.agents
        """Seats that the learner may take; one of them is drawn for each game."""
        self.results: list[GameResult] = []
        self._lineup: Lineup
        self._known: dict[str, Player] = {}
        self._rng = np.random.default_rng()
        self._opponents: dict[str, Opponent] = {}
        self.moves: list[tuple[str, int]] = []
        """Moves of the opponents in the open game."""
        self._resumed: StateDict | None = None
        self._logged: deque[int] = deque()
        self.set_lineup(only(RulePlayer("random"), "random"))

    def _actions(self) -> Space:
        found: dict[str, Space] = {agent: self.game.action_space(agent) for agent in self.agents}
        first = found[self.agents[0]]
        for agent, space in found.items():
            if not isinstance(space, spaces.Discrete) or space.start != 0:
                raise EnvError(f"game '{self.name}': actions of {agent} are {space}; a game needs Discrete(n) actions")
            if space != first:
                raise EnvError(
                    f"game '{self.name}': actions of {agent} are {space}, those of {self.agents[0]} {first}; one "
                    "policy plays every seat, so all have the same spaces"
                )
        return first

    def _observations(self) -> tuple[Space, Any, bool]:
        """(plain space, conversion to it, whether masks are found in infos)."""
        first = self.game.observation_space(self.agents[0])
        for agent in self.agents:
            if self.game.observation_space(agent) != first:
                raise EnvError(
                    f"game '{self.name}': observations of {agent} are {self.game.observation_space(agent)}, those of "
                    f"{self.agents[0]} {first}; one policy plays every seat, so all have the same spaces"
                )
        plain, convert = convert_observation_space(first)
        inner = dict(plain.spaces) if isinstance(plain, spaces.Dict) else {"obs": plain}
        if ACTION_MASK in inner:
            return plain, convert, False
        self.game.reset(seed=0)
        if ACTION_MASK not in self.game.last()[4]:
            return plain, convert, False
        size = int(self.action_space.n)  # type: ignore[attr-defined]
        return spaces.Dict({**inner, ACTION_MASK: spaces.MultiBinary(size)}), convert, True

    # -- who plays ----------------------------------------------------------------------------------------------------

    def sit_only(self, seats: tuple[str, ...]) -> None:
        """Draw the learner's seat from these from the next game on."""
        self.seats = seats

    def set_lineup(self, lineup: Lineup) -> None:
        """Draw opponents from these from the next game on. An opponent of the open game that has left is replaced by
        the first of them, and the rest of the game is not rated."""
        self._lineup = lineup
        self._known = {name: lineup.players.get(name) or self._known[name] for name in lineup.chances}
        for opponent in self._opponents.values():
            if opponent.name not in self._known:
                opponent.name, opponent.carry, opponent.is_rated = next(iter(self._known)), {}, False
            opponent.player = self._known[opponent.name]

    def take_results(self) -> list[GameResult]:
        """Games that ended since the last call."""
        taken, self.results = self.results, []
        return taken

    def _drawn(self) -> Opponent:
        names, chances = list(self._lineup.chances), np.cumsum(list(self._lineup.chances.values()))
        drawn = int(np.searchsorted(chances, self._rng.random() * chances[-1], side="right"))
        return Opponent(names[drawn], self._known[names[drawn]], {})

    # -- the environment ----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = stream(seed, "opponents")
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            self._begin(int(resumed["seed"]), options, resumed)
            return self._first_turn(), {}
        for _ in range(MOST_TRIES):
            own_seed = int(self._rng.integers(2**31)) if seed is None else seed
            if self._begin(own_seed, options, None):
                return self._first_turn(), {}
            seed = None
        raise EnvError(f"game '{self.name}' always ends before the learner has a turn; give every player a turn")

    def _begin(self, seed: int, options: dict[str, Any] | None, resumed: StateDict | None) -> bool:
        """Start a game and play up to the learner's first turn; False where it is over for the learner by then."""
        self._seed = seed
        self.game.reset(seed=seed, options=options)
        self._returns = dict.fromkeys(self.agents, 0.0)
        self.moves = []
        if resumed is None:
            self.seat = self.seats[int(self._rng.integers(len(self.seats)))]
            self._opponents = {agent: self._drawn() for agent in self.agents if agent != self.seat}
            self._logged = deque()
        else:
            self._sit_down_again(resumed)
        self._play_others()
        return self.seat in self.game.agents and not any(self.game.last(observe=False)[2:4])

    def _first_turn(self) -> Any:
        obs, reward, _, _, info = self.game.last()
        self._returns[self.seat] += float(reward)
        return self._observed(obs, info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.game.step(self.action_space.dtype.type(action))  # type: ignore[union-attr]
        self._play_others()
        if self.seat not in self.game.agents:
            raise EnvError(
                f"game '{self.name}': {self.seat} left without a last turn; an agent that has ended stays in agents "
                "until it takes the action None"
            )
        raw, reward, terminated, truncated, info = self.game.last()
        obs = self._observed(raw, info)
        self._returns[self.seat] += float(reward)
        outcome: dict[str, Any] = {}
        if terminated or truncated:
            result = self._finished()
            outcome[RESULT] = result.score
        return obs, float(reward), bool(terminated), bool(truncated), outcome

    def _observed(self, obs: Any, info: dict[str, Any]) -> Any:
        plain = obs if self._convert is None else self._convert(obs)
        if not self._mask_in_info:
            return plain
        mask = np.asarray(info.get(ACTION_MASK, np.zeros(self.action_space.n)), np.int8)  # type: ignore[attr-defined]
        return {**(plain if isinstance(plain, dict) else {"obs": plain}), ACTION_MASK: mask}

    def _play_others(self) -> None:
        """Turns of the opponents, until it is the learner's or nobody is left."""
        game = self.game
        while game.agents and game.agent_selection != self.seat:
            agent = game.agent_selection
            obs, reward, terminated, truncated, info = game.last()
            self._returns[agent] += float(reward)
            if terminated or truncated:
                self._leave(agent)
            else:
                game.step(self._move(agent, self._observed(obs, info)))

    def _leave(self, agent: str) -> None:
        """The last turn of an agent that has ended."""
        self.game.step(None)
        if agent in self.game.agents:  # its turn would come again and again
            raise EnvError(
                f"game '{self.name}': {agent} has ended and stays in agents; step(None) must take it out and choose "
                "the next agent_selection"
            )

    def _move(self, agent: str, obs: Obs) -> Any:
        if self._logged:
            move = self._logged.popleft()
            self._go_on_where_logged()
        else:
            opponent = self._opponents[agent]
            move, opponent.carry = opponent.player.act(obs, opponent.carry, self._rng)
            mask = mask_of(obs)
            if not 0 <= move < self.action_space.n or (mask is not None and not mask[move]):  # type: ignore[attr-defined]
                raise EnvError(f"game '{self.name}': opponent '{opponent.name}' played {move}, which is not legal")
        self.moves.append((agent, move))
        return self.action_space.dtype.type(move)  # type: ignore[union-attr]

    def _finished(self) -> GameResult:
        """Play on to the end without the learner, where others still play, and compare what everybody earned."""
        own = self.seat
        self._leave(own)
        self.seat = ""  # nobody's turn to wait for
        self._play_others()
        self.seat = own
        opponents, self._opponents = self._opponents, {}
        others = {agent: self._returns[agent] for agent in opponents}
        against = tuple(
            (opponents[agent].name, score_of(self._returns[own], others[agent]))
            for agent in opponents
            if opponents[agent].is_rated
        )
        score = score_of(self._returns[own], max(others.values()))
        result = GameResult(self.agents.index(own), score, against)
        self.results.append(result)
        return result

    # -- resume -------------------------------------------------------------------------------------------------------

    def episode_state(self) -> StateDict:
        """What the open game depends on beside its seed and the learner's moves."""
        return {
            "seed": self._seed,
            "seat": self.seat,
            "opponents": {
                agent: {"name": opponent.name, "is_rated": opponent.is_rated, "carry": dict(opponent.carry)}
                for agent, opponent in self._opponents.items()
            },
            "moves": np.array([move for _, move in self.moves], np.int64),
            "rng": generator_state(self._rng),
        }

    def resume_episode(self, state: StateDict) -> None:
        """The next reset begins this game again, with the same players and moves."""
        self._resumed = state

    def _sit_down_again(self, state: StateDict) -> None:
        self.seat = str(state["seat"])
        self._opponents = {}
        for agent, saved in state["opponents"].items():
            name = str(saved["name"])
            if name not in self._known:
                raise EnvError(f"game '{self.name}': opponent '{name}' of the open game is not in the league any more")
            self._opponents[agent] = Opponent(name, self._known[name], {}, bool(saved["is_rated"]))
        self._logged = deque(int(move) for move in state["moves"])
        self._saved = state
        self._go_on_where_logged()

    def _go_on_where_logged(self) -> None:
        """Where all logged moves are played again: go on with the memory and the random numbers of that moment."""
        if self._logged:
            return
        set_generator_state(self._rng, self._saved["rng"])
        for agent, saved in self._saved["opponents"].items():
            self._opponents[agent].carry = {name: np.array(value) for name, value in saved["carry"].items()}

    def render(self) -> Any:
        return self.game.render()  # type: ignore[attr-defined]

    def close(self) -> None:
        close = getattr(self.game, "close", None)
        if close is not None:
            close()


def score_of(own: float, other: float) -> float:
    """1, 0.5 or 0: more than the other, the same, less."""
    return 0.5 if math.isclose(own, other, rel_tol=1e-9, abs_tol=1e-9) else float(own > other)


def seat_of(env: gym.Env[Any, Any]) -> Seat | None:
    """The seat inside a stack of wrappers; None where the environment is no game."""
    inner = env.unwrapped
    return inner if isinstance(inner, Seat) else None


def seats_of(metadata: Any) -> tuple[str, ...]:
    """Who plays the game of this metadata; nobody where it is no game."""
    return tuple(metadata.get(SEATS, ()))
