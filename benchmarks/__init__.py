"""Benchmarks: each peer measured beside wsdsl in one run (`python -m benchmarks.device`)."""
