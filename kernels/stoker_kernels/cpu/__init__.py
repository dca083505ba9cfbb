"""Ops for CPUs in C++: one library per instruction set, chosen when the first is needed."""
