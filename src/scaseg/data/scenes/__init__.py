"""Drawing the scenes of `context_scenes`: what they look like, and what is to be learned."""
