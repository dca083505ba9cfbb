"""The ops as Triton kernels, for GPUs; one file per op: the kernel, then its launcher. Imported only where they run. README.md has the layouts."""
