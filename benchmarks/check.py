"""What a run of this package is worth: greedy return over fresh episodes. Reads the contestant's JSON from stdin."""

from __future__ import annotations

import json
import sys

from rl_training import evaluate

EPISODES = 100


def main() -> None:
    result = evaluate(json.load(sys.stdin)["run"], episodes=EPISODES, num_envs=50)
    print(json.dumps({"score": result["return_mean"], "env_steps": result["env_steps"]}))


if __name__ == "__main__":
    main()
