"""The passes, one a file; `pipeline.py` has their order."""
