"""Block arrays in files: `.npz`, `.safetensors`, `.pt` and JSON, read without torch and without running anything."""
