"""sglang's vendored FlashAttention-4 (`flash_attn/cute`), older than the flash-attn-4 package: forward only."""
