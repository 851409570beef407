"""`AutoTuner`: suggests which values to try next, by Optuna. Independent of runs: scores may come from anywhere.

The same functions drive `rl tune`. Optuna is imported lazily, when the first study is created.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from rl_training.config.searches.sweeps import RangeConfig
from rl_training.registry import did_you_mean
from rl_training.seeding import stream
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

Space = Mapping[str, RangeConfig | Sequence[Any]]
"""Dotted key to a range or a list of values."""
Config = dict[str, Any]
Direction = Literal["maximize", "minimize"]
DIGITS = 6
"""Significant digits of a suggested number, few enough to be typed again."""
WILCOXON_STEPS = 4
"""Seeds that a trial runs before it can be pruned: with fewer, no difference can be significant."""


class AutoTuner:
    """Suggests configs and learns from their performance.

    >>> tuner = AutoTuner({"hparams.clip_coef": [0.1, 0.2]}, sampler="random")
    >>> tuner.suggest_next_config([({"hparams.clip_coef": 0.1}, 12.0)])["hparams.clip_coef"] in (0.1, 0.2)
    True
    """

    def __init__(self, space: Space, *, sampler: str = "tpe", direction: Direction = "maximize", seed: int = 0) -> None:
        self.distributions = distributions(space)
        self.sampler = sampler
        self.seed = seed
        self.study = make_study(direction=direction)
        self._open: list[tuple[Config, Any]] = []
        self._known: list[tuple[Config, float]] = []

    def suggest_next_config(self, history: Iterable[tuple[Config, float]] = ()) -> Config:
        """Values for the next trial. `history` holds (config, performance) pairs from elsewhere; each is added once."""
        for config, performance in history:
            if (config, performance) not in self._known:
                self.update_with_result(config, performance)
        trial = ask(self.study, self.distributions, self.sampler, self.seed)
        config = decoded(trial.params)
        self._open.append((config, trial))
        return config

    def update_with_result(self, config: Config, performance: float) -> None:
        """Report the performance of a config, suggested or not. NaN means that it failed."""
        from optuna.trial import TrialState, create_trial

        self._known.append((dict(config), performance))
        is_number = math.isfinite(performance)
        for number, (suggested, trial) in enumerate(self._open):
            if suggested == config:
                del self._open[number]
                self.study.tell(trial, performance if is_number else None, None if is_number else TrialState.FAIL)
                return
        if is_number:
            params = encoded(config, self.distributions)
            self.study.add_trial(create_trial(params=params, distributions=self.distributions, value=performance))

    @property
    def best(self) -> tuple[Config, float] | None:
        """The best config so far and its performance; None before the first result."""
        from optuna.trial import TrialState

        if not self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return None
        return decoded(self.study.best_params), float(self.study.best_value)


# -- Optuna, by name --------------------------------------------------------------------------------------------------


@contextmanager
def optuna_here() -> Iterator[None]:
    """Turns a missing Optuna into a ConfigError with the pip command, and silences its warnings about experimental
    features."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(f"tuning needs an extra: pip install 'rl-training[tune]' ({error})") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", message=".*already reported", category=UserWarning)  # when resumed
        try:
            yield
        except ImportError as error:
            raise ConfigError(f"{error.msg}; or choose another sampler or pruner") from error


def make_study(
    *, direction: Direction = "maximize", pruner: str = "none", storage: BaseStorage | None = None, name: str = "study"
) -> Study:
    """A study in memory or, with `storage`, on disk, where an existing one is continued."""
    with optuna_here():
        import optuna

        return optuna.create_study(
            direction=direction,
            pruner=make_pruner(pruner),
            storage=storage,
            study_name=name,
            load_if_exists=storage is not None,
        )


def ask(study: Study, space: Mapping[str, BaseDistribution], sampler: str, seed: int) -> Any:
    """The next trial. Its random draws depend only on the seed and its number, so a resumed study continues exactly."""
    with optuna_here():
        number = len(study.get_trials(deepcopy=False))
        study.sampler = make_sampler(sampler, int(stream(seed, "tune", number).integers(2**31)))
        return study.ask(fixed_distributions=dict(space))


def ask_with_scores(study: Study, space: Mapping[str, BaseDistribution], sampler: str, seed: int) -> Any:
    """The next trial of a study whose unfinished trials have scores already (paused by a scheduler).

    Samplers learn from trials that have ended, so the sampler is shown a copy of the study in which such a trial was
    pruned with its last score; in the study itself it may go on.
    """
    with optuna_here():
        shown = make_study(direction=study.direction.name.lower())  # type: ignore[arg-type]
        shown.add_trials([_as_shown(trial) for trial in study.get_trials(deepcopy=False)])
        return add_running(study, ask(shown, space, sampler, seed).params, space, {})


def _as_shown(trial: FrozenTrial) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    scores = trial.intermediate_values
    if trial.state is not TrialState.RUNNING or not scores:
        return trial
    return create_trial(
        state=TrialState.PRUNED,
        value=scores[max(scores)],
        params=trial.params,
        distributions=trial.distributions,
        intermediate_values=scores,
    )


def add_running(
    study: Study, params: Mapping[str, Any], space: Mapping[str, BaseDistribution], attributes: Mapping[str, Any]
) -> Any:
    """A trial with these parameters, added to a study as one that runs."""
    with optuna_here():
        from optuna.trial import Trial, TrialState, create_trial

        study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=dict(params),
                distributions=dict(space),
                user_attrs=dict(attributes),
            )
        )
        study.sampler = make_sampler("random", 0)  # the values are there: nothing is drawn
        return Trial(study, study.get_trials(deepcopy=False)[-1]._trial_id)


def make_sampler(name: str, seed: int) -> BaseSampler:
    import optuna

    makers: dict[str, Any] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "qmc": optuna.samplers.QMCSampler,
        "gp": optuna.samplers.GPSampler,
        "cmaes": optuna.samplers.CmaEsSampler,
    }
    sampler: BaseSampler = _named(makers, name, "sampler")(seed=seed)
    return sampler


def make_pruner(name: str) -> BasePruner:
    """A pruner by name. Steps of a trial are its seeds, so Wilcoxon's test pairs equal seeds with the best trial."""
    import optuna

    makers: dict[str, Any] = {
        "none": optuna.pruners.NopPruner,
        "median": lambda: optuna.pruners.MedianPruner(n_warmup_steps=1),
        "wilcoxon": lambda: optuna.pruners.WilcoxonPruner(p_threshold=0.1, n_startup_steps=WILCOXON_STEPS),
    }
    pruner: BasePruner = _named(makers, name, "pruner")()
    return pruner


def _named(makers: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in makers:
        raise ConfigError(f"unknown {what} '{name}'{did_you_mean(name, makers)} (there are {', '.join(makers)})")
    return makers[name]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """A search space as Optuna distributions; values that are not scalars (layer widths) are encoded as JSON."""
    with optuna_here():
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        found: dict[str, BaseDistribution] = {}
        for key, values in space.items():
            if not isinstance(values, RangeConfig):
                found[key] = CategoricalDistribution([_choice(value) for value in values])
            elif values.integer:
                found[key] = IntDistribution(int(values.low), int(values.high), log=values.log)
            else:
                found[key] = FloatDistribution(values.low, values.high, log=values.log)
        return found


def decoded(params: Mapping[str, Any]) -> Config:
    """Config values from Optuna's parameters."""
    return {key: _value(value) for key, value in params.items()}


def encoded(config: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> Config:
    """The inverse of `decoded`, for the keys that are searched."""
    missing = [key for key in space if key not in config]
    if missing:
        raise ConfigError(f"the config has no value for {', '.join(missing)}, which the search is over")
    return {key: _choice(config[key]) for key in space}


def _choice(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else f"json:{json.dumps(value)}"


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("json:"):
        return json.loads(value.removeprefix("json:"))
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
