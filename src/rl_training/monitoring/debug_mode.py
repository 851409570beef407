"""Debug mode: watches the updates of an algorithm, records and explains them. It changes none of their numbers.

`DebugMode(algorithm).wrap_update()` gives an update to use in place of the algorithm's own. `DebugCallback` is the same
in a run (`monitor.debug`, `rl train --debug`) with environment check, profiler trace and memory profile around it.
"""

from __future__ import annotations

import copy
import json
import math
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from rl_training.checkpointing.capture import save_capture
from rl_training.checkpointing.seal import fitting
from rl_training.config.monitor import DebugConfig
from rl_training.guards import is_finite, leaves
from rl_training.monitoring.gradient_check import GradientCheck, check_gradients
from rl_training.runs.stored_config import CAPTURE, seal_config
from rl_training.system.atomic_io import atomic_write
from rl_training.system.json_lines import AppendFile, encode_row, plain_row
from rl_training.training.callbacks import Callback
from rl_training.training.contract import inspected
from rl_training.training.host import HostTrainer, Update
from rl_training.training.loop import Report, Trainer
from rl_training.types import Algorithm, Batch, NonFiniteError, Progress, StateDict, UpdateResult

SATURATED = 0.99
"""A tanh or sigmoid unit whose output is this close to its bounds passes hardly any gradient."""
HINT_SHARE = 0.5
"""Share of dead or saturated units from which on a layer gets a hint."""
LARGE_UPDATE, SMALL_UPDATE = 0.1, 1e-7
"""Size of an update relative to its weights above which, and below which, there is a hint."""
BOUNDED = (nn.Tanh, nn.Sigmoid)
PROFILED_STEPS = 2
MEMORY_LINES = 20


class DebugMode:
    """Watches the updates of one algorithm and writes what it finds to `folder`, if one is given."""

    def __init__(
        self,
        algorithm: Algorithm,
        folder: Path | str | None = None,
        *,
        cfg: DebugConfig | None = None,
        context: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.algorithm = algorithm
        self.folder = None if folder is None else Path(folder)
        self.cfg = cfg or DebugConfig(enabled=True)
        self.context = context
        """Called when an update is captured: what to save beside the batch and the state."""
        self.updates = 0
        self.statistics: dict[str, float] = {}
        """Statistics of the latest update per layer: gradient, weight and update norms, dead and saturated units."""
        self.gradient_checks: list[GradientCheck] = []
        self.captured: list[Path] = []
        self._log: AppendFile | None = None

    def wrap_update(self, update: Update | None = None) -> Update:
        """The algorithm's update, or the given one, watched. Call it in place of the original."""
        return partial(self._update, update or self.algorithm.update)

    def _update(self, update: Update, batch: Batch) -> UpdateResult:
        before = snapshot(self.algorithm)
        self.updates += 1
        if self.cfg.gradient_check and self.updates == 1:
            self.gradient_checks = self.check_gradients(batch, update)
        if self.cfg.capture_update == self.updates:
            self.capture(batch, before, "asked for")
        try:
            with recorded(self.algorithm) as recorder:
                result = update(batch)
            if name := first_bad(self.algorithm, result):
                raise NonFiniteError(f"{name} is not finite after update {self.updates}", name=name)
        except NonFiniteError as error:
            where = self.explain(batch, before, update)
            path = self.capture(batch, before, f"{error}; {where}")
            replay = f"; replay it with `rl debug replay {path}`" if path else ""
            raise NonFiniteError(f"{error}. {where}{replay}", name=error.name) from error
        self.statistics = recorder.summary()
        self._write_statistics()
        return result

    def check_gradients(self, batch: Batch, update: Update | None = None) -> list[GradientCheck]:
        """Compare the gradient of every parameter with finite differences; see `gradient_check`."""
        before, module = snapshot(self.algorithm), nn.ModuleDict(dict(trained_modules(self.algorithm)))
        with inspected(self.algorithm).reference_gradients():
            restore = partial(load_snapshot, self.algorithm, before)
            return check_gradients(update or self.algorithm.update, batch, module, restore)

    def explain(self, batch: Batch, before: StateDict, update: Update | None = None) -> str:
        """Run a failed update once more and name the first module whose output was not finite."""
        after = snapshot(self.algorithm)
        found: list[str] = []

        def look(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
            bad_input = any(not is_finite(leaf) for _, leaf in tensors(inputs))
            if not found and not bad_input and any(not is_finite(leaf) for _, leaf in tensors(output)):
                found.append(f"The first bad tensor is the output of {name} ({type(module).__name__})")

        with ExitStack() as stack:
            stack.enter_context(inspected(self.algorithm).reference_gradients())
            for root, network in trained_modules(self.algorithm):
                for name, module in network.named_modules(prefix=root):
                    if not list(module.children()):
                        stack.callback(module.register_forward_hook(partial(look, name)).remove)
            load_snapshot(self.algorithm, before)
            try:
                (update or self.algorithm.update)(batch)
            except NonFiniteError as error:
                found.append(f"No module of a network gave it; it shows first as {error.name}")
        load_snapshot(self.algorithm, after)
        return found[0] if found else "No module of a network gave it"

    def capture(self, batch: Batch, before: StateDict, why: str) -> Path | None:
        """Save the batch with the state before the update, for `rl debug replay`."""
        if self.folder is None:
            return None
        path = self.folder / f"update_{self.updates:06d}.capture"
        save_capture(path, {"why": why, "updates": self.updates, "batch": batch, **before, **self.context()})
        self.captured.append(path)
        return path

    def hints(self) -> list[str]:
        """What is unusual about the latest update, in words."""
        found = []
        for name, value in self.statistics.items():
            layer, _, what = name.rpartition("/")
            if what == "dead_share" and value >= HINT_SHARE:
                found.append(f"{layer}: {value:.0%} of its units are 0 for every row; lower the learning rate")
            elif what == "saturated_share" and value >= HINT_SHARE:
                found.append(f"{layer}: {value:.0%} of its outputs are at their bounds; scale the observations")
            elif what == "update_ratio" and value >= LARGE_UPDATE:
                found.append(f"{layer}: an update moves it by {value:.0%} of its size; lower the learning rate")
            elif what == "update_ratio" and value <= SMALL_UPDATE:
                found.append(f"{layer}: it does not learn (gradient norm {self.statistics[f'{layer}/grad_norm']:.1g})")
        wrong = [check for check in self.gradient_checks if not check.ok]
        found += [
            f"{check.parameter}: autograd gives {check.autograd:.4g} along a {check.direction} direction of loss "
            f"{check.loss}, finite differences {check.differences:.4g}"
            for check in wrong
        ]
        return found

    def _write_statistics(self) -> None:
        if self.folder is None:
            return
        if self._log is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._log = AppendFile(self.folder / "layers.jsonl")
        self._log.append(encode_row(plain_row({"updates": self.updates, **self.statistics})))
        self._log.flush()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


# -- looking into an algorithm ----------------------------------------------------------------------------------------


def snapshot(algorithm: Algorithm) -> StateDict:
    """A copy of everything an update can change."""
    return copy.deepcopy({"policy": algorithm.policy.state_dict(), "algorithm": algorithm.state_dict()})


def load_snapshot(algorithm: Algorithm, state: StateDict) -> None:
    """Bring the algorithm back to a snapshot, gradients included: they are cleared."""
    with fitting("the captured state"):
        algorithm.policy.load_state_dict(state["policy"])
        algorithm.load_state_dict(state["algorithm"])
    for _, module in trained_modules(algorithm):
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()


def trained_modules(algorithm: Algorithm) -> Iterator[tuple[str, nn.Module]]:
    """The networks that an algorithm trains, by name."""
    yield from inspected(algorithm).named_modules()


def optimized(algorithm: Algorithm) -> Iterator[tuple[Any, dict[str, Tensor]]]:
    """Every optimiser with the parameters that it moves, by name."""
    named: dict[str, Tensor] = {
        name: parameter
        for root, module in trained_modules(algorithm)
        for name, parameter in module.named_parameters(prefix=root)
    }
    for root, optimizer in inspected(algorithm).named_optimizers():
        if isinstance(optimizer, torch.optim.Optimizer):
            own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            yield optimizer, {name: parameter for name, parameter in named.items() if id(parameter) in own}
        else:
            yield optimizer, {name: parameter for name, parameter in named.items() if name.startswith(f"{root}.")}


def tensors(tree: Any) -> Iterator[tuple[str, Tensor]]:
    return ((name, leaf) for name, leaf in leaves(tree, "") if isinstance(leaf, Tensor))


def first_bad(algorithm: Algorithm, result: UpdateResult) -> str | None:
    """The name of the first metric or parameter that is not finite."""
    for name, value in result.metrics.items():
        if not math.isfinite(float(value)):
            return f"train/{name}"
    for root, module in trained_modules(algorithm):
        for name, parameter in module.named_parameters(prefix=root):
            if not is_finite(parameter):
                return name
    return None


class _Recorder:
    """Collects the statistics of the layers during one update."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        self.values[name].append(value)

    def summary(self) -> dict[str, float]:
        """The mean over the optimiser steps or forward passes of the update."""
        return {name: float(np.mean(values)) for name, values in self.values.items()}


@contextmanager
def recorded(algorithm: Algorithm) -> Iterator[_Recorder]:
    """Inside, every optimiser step and every activation is recorded."""
    recorder = _Recorder()
    with ExitStack() as stack:
        for optimizer, parameters in optimized(algorithm):
            step = optimizer.step
            optimizer.step = partial(_recorded_step, step, parameters, recorder)
            stack.callback(setattr, optimizer, "step", step)
        for root, network in trained_modules(algorithm):
            for name, module in network.named_modules(prefix=root):
                if isinstance(module, nn.ReLU | nn.Tanh | nn.Sigmoid):
                    stack.callback(module.register_forward_hook(partial(_record_units, name, recorder)).remove)
        yield recorder


def _recorded_step(
    step: Callable[..., Any], parameters: Mapping[str, Tensor], recorder: _Recorder, *arguments: Any, **keywords: Any
) -> Any:
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    result = step(*arguments, **keywords)
    for name, parameter in parameters.items():
        change = float(torch.linalg.vector_norm(parameter.detach() - before[name]))
        weight = float(torch.linalg.vector_norm(before[name]))
        if parameter.grad is not None:
            recorder.add(f"{name}/grad_norm", float(torch.linalg.vector_norm(parameter.grad)))
        recorder.add(f"{name}/weight_norm", weight)
        recorder.add(f"{name}/update_norm", change)
        if weight > 0:
            recorder.add(f"{name}/update_ratio", change / weight)
    return result


def _record_units(name: str, recorder: _Recorder, module: nn.Module, inputs: Any, output: Tensor) -> None:
    rows = output.detach().reshape(-1, output.shape[-1])
    if isinstance(module, BOUNDED):
        low = 0.0 if isinstance(module, nn.Sigmoid) else -1.0
        scaled = 2.0 * (rows - low) / (1.0 - low) - 1.0
        recorder.add(f"{name}/saturated_share", float((scaled.abs() > SATURATED).float().mean()))
    else:
        recorder.add(f"{name}/dead_share", float((rows <= 0).all(0).float().mean()))


# -- in a run ---------------------------------------------------------------------------------------------------------


class DebugCallback(Callback):
    """Debug mode for a whole run: `debug/` in its directory, and a report at the end."""

    def __init__(
        self,
        folder: Path,
        cfg: DebugConfig,
        config: Mapping[str, Any],
        *,
        check_env: Callable[[], str],
        tell: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.cfg = cfg
        self.config = config
        """The run's config without its secrets, for captured updates."""
        self.check_env = check_env
        self.tell = tell
        self.steps = 0
        self.mode: DebugMode | None = None
        self.profiler: Any = None
        self.first_memory: Any = None
        self.traced_from = 0
        self.rss: list[int] = []

    def on_start(self, trainer: Trainer) -> None:
        context = partial(run_context, trainer.progress, self.config)
        self.mode = DebugMode(trainer.algorithm, self.folder, cfg=self.cfg, context=context)
        cast(HostTrainer, trainer).wrap_update(self.mode.wrap_update)  # the assembly refuses debug mode with jax
        self.tell(f"debug: environment: {self.check_env()}")

    def on_step(self, trainer: Trainer, report: Report) -> None:
        self.steps += 1
        self.rss.append(psutil.Process().memory_info().rss)
        if self.cfg.profile and self.steps == 1:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.start()
        elif self.profiler is not None and self.steps == 1 + PROFILED_STEPS:
            self._finish_profile()
        if self.cfg.memory and self.profiler is None and self.first_memory is None:  # tracing slows what is profiled
            tracemalloc.start()
            self.first_memory, self.traced_from = tracemalloc.take_snapshot(), self.steps

    def on_failure(self, trainer: Trainer, error: BaseException) -> None:
        """Write what was found so far; profiler and memory tracing end here."""
        self.on_end(trainer)

    def on_end(self, trainer: Trainer) -> None:
        if self.profiler is not None:
            self._finish_profile()
        if self.first_memory is not None and tracemalloc.is_tracing():
            self._write_memory()
        if self.mode is None:
            return
        self.mode.close()
        checks = self.mode.gradient_checks
        hints = self.mode.hints()
        report = {
            "updates": self.mode.updates,
            "hints": hints,
            "gradient_checks": [vars(check) for check in checks],
            "layers": self.mode.statistics,
            "rss_bytes": {"first": self.rss[0], "last": self.rss[-1]} if self.rss else None,
        }
        atomic_write(self.folder / "report.json", json.dumps(report, indent=2).encode() + b"\n")
        lines = [f"debug: {hint}" for hint in hints] or ["debug: nothing odd in the layers of the last update"]
        if checks:
            said = [check for check in checks if check.differences is not None]
            lines.append(f"debug: {sum(check.ok for check in said)} of {len(said)} gradient checks agree")
        self.tell("\n".join([*lines, f"debug: see {self.folder}"]))

    def _finish_profile(self) -> None:
        profiler, self.profiler = self.profiler, None
        profiler.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25)
        atomic_write(self.folder / "profile.txt", table.encode())

    def _write_memory(self) -> None:
        growth = tracemalloc.take_snapshot().compare_to(self.first_memory, "lineno")
        tracemalloc.stop()
        lines = [str(line) for line in growth[:MEMORY_LINES]]
        head = f"Python memory taken between train steps {self.traced_from} and {self.steps}, largest growth first"
        atomic_write(self.folder / "memory.txt", "\n".join([head, *lines, ""]).encode())


def run_context(progress: Progress, config: Mapping[str, Any]) -> dict[str, Any]:
    seal = seal_config(CAPTURE, CAPTURE, config)
    return {"progress": progress.state_dict(), "config": json.dumps(config), "trust_seal": seal}
