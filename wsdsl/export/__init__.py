"""Exported kernels: cubins, a JSON manifest and a C launcher (docs/export.md)."""
