"""Problems for the tests of all families: one mask of each kind, and a problem around it."""

from attnctl_kernels.contract import Mask, Problem

CAUSAL = Mask(pattern="causal")

# One of each, for sequences of 500 tokens.
MASKS = {
    "dense": Mask(),
    "causal": CAUSAL,
    "window": Mask(pattern="sliding_window", window=100),
    "prefix": Mask(pattern="prefix_lm", prefix_len=77),
    "history": Mask(pattern="history_candidate", history_len=300),
    "documents": Mask(pattern="document", document_len=130),
    "causal documents": Mask(pattern="document", document_len=130, causal=True),
    "ragged documents": Mask(pattern="document", document_lens=(60, 1, 239, 200)),
    "causal ragged documents": Mask(pattern="document", document_lens=(60, 1, 239, 200), causal=True),
    "blocks": Mask(pattern="blocks", block_size=(100, 50), rows=((0, 3), (), (9,), (1, 2, 3, 4), (0, 9))),
}


def make_problem(seqlen_q=1024, seqlen_k=None, *, heads=4, heads_kv=None, head_dim=128, head_dim_v=None, **more):
    return Problem(
        batch_size=more.pop("batch_size", 1),
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k or seqlen_q,
        num_heads_q=heads,
        num_heads_kv=heads_kv or heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v or head_dim,
        dtype=more.pop("dtype", "bfloat16"),
        **{"mask": CAUSAL, **more},
    )
