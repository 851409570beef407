"""Overlapped training (`env.overlap`): the next rollout or block is collected while the learner works on the last."""
