"""Dependency maps: what each neuron depends on, drawn, compared and tested."""
