"""Probe environments: tiny problems with known solutions, which test an algorithm against exact numbers."""

from rl_training.envs.probes.catalogue import LQR_GAIN, PROBES, Probe, register_probes
from rl_training.envs.probes.catch import Catch
from rl_training.envs.probes.control import (
    Chain,
    Combination,
    ConstantReward,
    Counting,
    DictObs,
    HiddenCue,
    LinearQuadratic,
    MaskedArms,
    ObsTimesAction,
    OneState,
    RewardIsObs,
    StaySwitch,
    Target,
    TwoArms,
)
from rl_training.envs.probes.exploration import DeepSea
from rl_training.envs.probes.goals import BitFlip, PointReach
from rl_training.envs.probes.memory import CueMemory, RepeatPrevious

__all__ = [
    "LQR_GAIN",
    "PROBES",
    "BitFlip",
    "Catch",
    "Chain",
    "Combination",
    "ConstantReward",
    "Counting",
    "CueMemory",
    "DeepSea",
    "DictObs",
    "HiddenCue",
    "LinearQuadratic",
    "MaskedArms",
    "ObsTimesAction",
    "OneState",
    "PointReach",
    "Probe",
    "RepeatPrevious",
    "RewardIsObs",
    "StaySwitch",
    "Target",
    "TwoArms",
    "register_probes",
]
