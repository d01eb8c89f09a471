"""The explorer: a page that shows live what every neuron of a picture depends on."""
