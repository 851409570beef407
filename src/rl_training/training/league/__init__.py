"""Leagues: the opponents of a game, their ratings, and matches; see the README."""
