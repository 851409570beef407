"""Games: environments whose agents take turns, as one seat for the learner with opponents inside; see the README."""
