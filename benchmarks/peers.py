"""The peers' own virtual environments in the clone: made on first use, never mixed with the package's.

The peers get the versions of torch, jax, NumPy and Gymnasium in constraints.txt, so that a contest compares the code
above them. Where pip serves another build of torch than you want, make the environment with your own torch first: it
is kept.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Environment(NamedTuple):
    """What an environment holds."""

    packages: tuple[str, ...]
    shared: tuple[str, ...]
    """What everybody runs on; beyond these the peers choose their own versions, which contradict the package's."""


ENVIRONMENTS = {
    ".venv-peers": Environment(
        ("stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "tianshou==2.0.1", "cpprb==11.0.0", "imageio"),
        ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "opencv-python-headless", "dm_control", "Shimmy"),
    ),
    ".venv-peers-jax": Environment(
        ("rejax==0.1.3", "gymnax==0.0.9", "sbx-rl==0.28.0"),
        ("torch", "jax", "jaxlib", "numpy", "gymnasium"),
    ),
    ".venv-peers-teams": Environment(
        # takes the PettingZoo before the package's, and cannot be imported without what its extra `llm` names
        ("agilerl==2.58.0", "transformers==5.14.1", "peft==0.21.0"),
        ("torch", "numpy", "gymnasium", "mpe2"),
    ),
    ".venv-peers-offline": Environment(("d3rlpy==2.8.1",), ("torch",)),
    ".venv-peers-sheeprl": Environment(("sheeprl==0.8.4",), ("torch", "numpy", "gymnasium")),
    ".venv-peers-torchrl": Environment(
        ("torchrl==0.14.1", "hydra-core==1.3.8"), ("torch", "numpy", "mujoco", "dm_control")
    ),
}


def wanted(environment: Environment) -> list[str]:
    """What pip is asked for: the packages, and the lines of constraints.txt that hold for them too."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [*environment.packages, *(line for line in lines if line.split("==")[0] in environment.shared)]


def peers_python(name: str) -> Path:
    """The interpreter of a peers' environment, installed if it is not there or not up to date."""
    folder, environment = ROOT / name, ENVIRONMENTS[name]
    python, stamp = folder / "bin" / "python", folder / ".installed"
    packages = wanted(environment)
    if stamp.exists() and stamp.read_text() == "\n".join(packages) and python.exists():
        return python
    print(
        f"installing {', '.join(environment.packages)} into {name} (once, a few minutes)", file=sys.stderr, flush=True
    )
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([str(python), "-m", "pip", "install", *quiet, *packages], check=True)
    stamp.write_text("\n".join(packages))
    return python
