"""The kernels for sm_90a, in CuTe DSL. Imports cutlass: for worker processes and programs only."""
