"""The peers' own virtual environment, .venv-peers in the clone: made on first use, never mixed with the package's.

The peers get the versions of torch, NumPy and Gymnasium in constraints.txt, so that a contest compares the code above
them. Where pip serves another build of torch than you want, make `.venv-peers` with your own torch first: it is kept.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-peers"
PACKAGES = ("stable-baselines3==2.9.2", "tianshou==2.0.1", "cpprb==11.0.0", "imageio")
SHARED = ("torch", "numpy", "gymnasium", "mujoco")
"""What everybody runs on; beyond these the peers choose their own versions, which contradict the package's."""


def shared_pins() -> list[str]:
    """The lines of constraints.txt that hold for the peers too."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.split("==")[0] in SHARED]


def wanted(packages: tuple[str, ...] = PACKAGES) -> str:
    """What the stamp of a finished environment holds; a change of it installs again."""
    return "\n".join([*packages, *shared_pins()])


def peers_python() -> Path:
    """The interpreter of the peers' environment, installed if it is not there or not up to date."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    if stamp.exists() and stamp.read_text() == wanted() and python.exists():
        return python
    print(f"installing {', '.join(PACKAGES)} into {FOLDER.name} (once, a few minutes)", file=sys.stderr, flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([str(python), "-m", "pip", "install", *quiet, *shared_pins(), *PACKAGES], check=True)
    stamp.write_text(wanted())
    return python
