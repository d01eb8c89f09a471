"""The operator as modules to build networks from."""
