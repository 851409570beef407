"""Assembly of runs with several agents: teams, games and their matches."""
