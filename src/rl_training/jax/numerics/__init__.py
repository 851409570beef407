"""Returns, normalisers and permutations as pure JAX functions."""
