"""PyTorch's FlexAttention (`torch.nn.attention.flex_attention`), compiled by inductor."""
