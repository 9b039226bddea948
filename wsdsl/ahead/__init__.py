"""Compile in other processes: before all calls (`precompile`), or during calls that another kernel
runs (`misses`).
"""
