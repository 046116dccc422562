"""The one seed of the experiments."""

SEED = 20261115
