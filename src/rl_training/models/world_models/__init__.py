"""Layers of world models: RMS norm, block-linear layers, two-hot predictions, image encoder and decoder."""
