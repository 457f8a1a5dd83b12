"""Files that PyTorch writes: ONNX and ExecuTorch."""
