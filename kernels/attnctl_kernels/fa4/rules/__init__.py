"""The rules of flash-attn-4: tiles, entry checks, block sparsity, and what two passes must share."""
