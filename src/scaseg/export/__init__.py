"""Models as files for other runtimes: ONNX, and torch.export's own format."""
