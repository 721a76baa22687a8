"""Private training in PyTorch (extra ``train``)."""
