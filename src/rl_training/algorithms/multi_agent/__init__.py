"""Algorithms for several agents: the team that plays an environment, IPPO and MAPPO, value mixing (VDN, QMIX)."""
