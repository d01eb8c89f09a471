"""The contexts that selective context is compared with."""
