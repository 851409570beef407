"""Learning without an environment, and recording what is learnt from: the offline loop, and episodes for datasets."""
