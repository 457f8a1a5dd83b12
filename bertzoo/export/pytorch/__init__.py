"""Files that PyTorch writes: TorchScript, torch.export, ONNX and ExecuTorch."""
