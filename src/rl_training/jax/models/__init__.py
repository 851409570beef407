"""Networks of the JAX backend as (init, apply) pairs on pytrees."""
