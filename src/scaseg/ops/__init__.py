"""The operator: tensors in, tensors out; no modules, no configuration."""
