"""Commands about recorded runs: find, describe, tag, store and trust them."""
