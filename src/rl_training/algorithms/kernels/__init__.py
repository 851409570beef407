"""Hand-written gradients of the small networks, held to the readable losses by tests."""
