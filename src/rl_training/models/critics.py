"""Ensembles of action values: E critics as one batched network.

Twin critics as two modules cost twice the calls; here every layer is one batched product over (E, B, width). Your own
backbone cannot be batched: each member then has its own copy of it, and only the last layers are batched. A memory is
one for all members, as is the encoder of images, which the actor sees through too (`shared_encoder.py`).
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.networks import COMPOSED, spelt_out
from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.build import build_backbone, width
from rl_training.models.backbones.mlp import ACTIVATIONS, MLP
from rl_training.models.observed import Seen, features_of, rows_of
from rl_training.models.shared_encoder import SharedEncoder
from rl_training.numerics.initial_weights import GAINS, VALUE_GAIN, weight_matrix
from rl_training.types import BoxSpec, DiscreteSpec, SpaceSpec


class EnsembleLinear(nn.Module):
    """E linear layers side by side: (E, B, inputs) or (B, inputs) to (E, B, outputs)."""

    def __init__(
        self, rng: np.random.Generator, sizes: tuple[int, int, int], *, kind: str = "orthogonal", gain: float
    ) -> None:
        super().__init__()
        members, inputs, outputs = sizes
        weights = [weight_matrix(rng, outputs, inputs, kind, gain).T for _ in range(members)]
        self.weight = nn.Parameter(torch.from_numpy(np.stack(weights)))  # (E, inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.expand(len(self.weight), *x.shape) if x.dim() == 2 else x
        return torch.baddbmm(self.bias, rows, self.weight)


class QCritics(nn.Module):
    """E action values of a state: `forward(obs, actions)` gives (E, B) for Box actions, `forward(obs)` (E, B, A) for
    Discrete ones."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: BoxSpec | DiscreteSpec,
        cfg: BackboneConfig,
        rng: np.random.Generator,
        members: int = 2,
        shared: SharedEncoder | None = None,
    ) -> None:
        super().__init__()
        self.shared = shared
        """Encodes images, for the actor too; `observation_space` is then that of its output."""
        cfg = spelt_out(cfg) if cfg.type in COMPOSED else cfg
        remembers = cfg.memory.type != "none" and cfg.type in COMPOSED
        continuous = isinstance(action_space, BoxSpec)
        actions = math.prod(action_space.shape) if continuous else 0
        flat = cfg.type == "mlp" and not remembers
        plain = MLP(observation_space, BackboneConfig(hidden_dims=()), rng) if flat else None
        self.encoder = plain
        """Flattens the observation, and has no weights; None if members have backbones."""
        copies = 0 if flat else 1 if remembers else members
        self.backbones = nn.ModuleList(build_backbone(observation_space, cfg, rng) for _ in range(copies))
        size = (width(self.backbones[0]) if plain is None else plain.out_features) + actions
        hidden_dims = cfg.hidden_dims if plain is not None else cfg.hidden_dims[-1:]
        if remembers and not hidden_dims:
            hidden_dims = (cfg.memory.size,)  # without a layer behind the action values would be linear in it
        layers: list[nn.Module] = []
        for hidden in hidden_dims:
            gain = GAINS.get(cfg.activation, 1.0)
            layers.append(EnsembleLinear(rng, (members, size, hidden), kind=cfg.init, gain=gain))
            if cfg.layer_norm:
                layers.append(nn.LayerNorm(hidden))
            layers.append(ACTIVATIONS[cfg.activation]())
            size = hidden
        self.layers = nn.Sequential(*layers)
        outputs = 1 if isinstance(action_space, BoxSpec) else action_space.n
        self.output = EnsembleLinear(rng, (members, size, outputs), gain=VALUE_GAIN)

    def shown(self, obs: Seen) -> Seen:
        """What actors are shown: observations as they are, or through the shared encoder, without gradient."""
        if self.shared is None:
            return obs
        with torch.no_grad():
            return self.shared.see(obs)

    def forward(self, obs: Seen, actions: Tensor | None = None) -> Tensor:
        obs = obs if self.shared is None else self.shared.see(obs)
        behind = [] if actions is None else [actions.flatten(1)]
        if self.encoder is not None:
            x = torch.cat([self.encoder.encode(rows_of(obs)), *behind], dim=1)  # (B, F + A)
        else:
            members = [torch.cat([features_of(backbone, obs), *behind], dim=1) for backbone in self.backbones]
            x = members[0] if len(members) == 1 else torch.stack(members)
        values = cast(Tensor, self.output(self.layers(x)))
        return values if actions is None else values.squeeze(2)
