"""`ray start` for a node that other machines cannot reach: `python -m rl_training.distributed.local_node start ...`.

Ray replaces 127.0.0.1 by the address of the machine and then accepts connections from other machines, and
any process that reaches a cluster can run code on it. Here the address stays, and Ray's servers listen to this machine
alone.
"""

from __future__ import annotations

from typing import Any

LOOPBACK = "127.0.0.1"


def keep_loopback() -> None:
    """Make Ray take 127.0.0.1 for the address of this host."""
    from ray._private import services

    def loopback(address: str | None = None) -> str:
        return LOOPBACK

    services.get_node_ip_address = loopback


def main() -> None:
    from ray.scripts import scripts

    keep_loopback()
    command: Any = scripts.main  # not typed
    command()


if __name__ == "__main__":
    main()
