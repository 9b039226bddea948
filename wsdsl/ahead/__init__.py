"""Compile in other processes: before calls (`precompile`, `precompiling`), or during calls that
another kernel runs (`misses`).
"""
