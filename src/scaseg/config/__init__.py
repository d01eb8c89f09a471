"""Dataclasses that describe a model and a run, and recipes in YAML."""
