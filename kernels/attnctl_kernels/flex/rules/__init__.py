"""Rules of FlexAttention, for torch 2.13 and 2.5. Codes above FLEX-018 are faults that upstream has no check for."""
