"""Every network with every kind of observation: trains with finite numbers, repeats itself, resumes bit for bit.

A sample runs always; the whole grid is slow.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import image_cases
import pytest

from rl_training.testing import check_algorithm

ALGORITHMS = ("ppo", "a2c", "dqn", "sac")
MEMORIES = ("none", "gru", "lstm", "transformer")
SAMPLE = {
    ("ppo", "TestImages/Grid-dict-masked-v0", "gru"),
    ("ppo", "TestImages/Grid-image-v0", "transformer"),
    ("a2c", "TestImages/Grid-image-masked-v0", "lstm"),
    ("dqn", "TestImages/Grid-dict-v0", "transformer"),
    ("sac", "TestImages/Grid-image-masked-v0", "none"),
}


def cell(algo: str, env_id: str, memory: str) -> Any:
    marks = () if (algo, env_id, memory) in SAMPLE else pytest.mark.slow
    return pytest.param(algo, env_id, memory, marks=marks)


@pytest.mark.parametrize(
    ("algo", "env_id", "memory"), [cell(*where) for where in product(ALGORITHMS, image_cases.GRID, MEMORIES)]
)
def test_conforms(algo: str, env_id: str, memory: str) -> None:
    part = {
        "hidden_dims": [8],
        "encoder": {"features": 8},
        "memory": {"type": memory, "size": 8, **({"window": 3} if memory == "transformer" else {})},
    }
    replay = algo in ("dqn", "sac")
    hparams = {"sequence_length": 4, **({"burn_in": 2} if replay else {})} if memory != "none" else {}
    config = {"network": {"actor": part, "critic": part}}
    assert check_algorithm(algo, environments=[env_id], hparams=hparams, config=config).trained_on == (env_id,)


def test_the_sample_is_part_of_the_grid() -> None:
    assert set(product(ALGORITHMS, image_cases.GRID, MEMORIES)) >= SAMPLE
    assert {memory for _, _, memory in SAMPLE} == set(MEMORIES)
    assert {algo for algo, _, _ in SAMPLE} == set(ALGORITHMS)
