"""Program: save until the file system or the file size limit refuses, and check what is left.

python full_disk.py FOLDER BYTES          FOLDER is on a file system of BYTES bytes
python full_disk.py FOLDER BYTES limit    the system limits every file to BYTES bytes instead
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
from checkpoint_cases import assert_same, names_in, refusal

from rl_training.checkpointing.manager import CheckpointManager


def main(folder: Path, size: int, limited: bool) -> None:
    if limited:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    manager = CheckpointManager(folder)
    rng = np.random.default_rng(0)
    old = {"policy": {"w": rng.random(size // 8 * 6 // 10)}}
    manager.save(old, step=1, best=True)
    before = names_in(folder)
    message = refusal(lambda: manager.save({"policy": {"w": rng.random(size // 8)}}, step=2))
    assert ("File too large" if limited else "No space left on device") in message, message
    for words in ("step 2", "MB are free", "ulimit" if limited else "Free disk", "rl resume", "step 1 is intact"):
        assert words in message, message
    assert names_in(folder) == before
    assert_same(CheckpointManager(folder).load_latest().parts, old)
    small = {"policy": {"w": rng.random(10)}}
    manager.save(small, step=2)
    assert_same(CheckpointManager(folder).load_latest().parts, small)
    sys.stdout.write(message)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["limit"])
