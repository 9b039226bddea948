"""Entries that show each pass at work: `make test` lowers them, and every sample has them."""

_ENTRIES = {
    "orders/10/epilogue": (
        "approximate_math fuse_accumulators choose_schedule assign_tile_sizes fit_last_tiles "
        "make_plan partition_loads split_contractions assign_multicast lower_loops lower_split_k "
        "schedule_products assign_states lower_rings lower_tiles hoist_operands insert_prologue "
        "allocate_shared cse"
    ),
    "decode/f8e4m3/S=1/arch=sm_100a": (
        "place_operands hoist_loads hoist_indices bound_ranges assign_decode_axes"
    ),
    "lossless/bytes/4096": "hold_tables join_bytes load_rows_ahead hoist_scalars",
    "patterns/groupnorm": "hold_rows join_exchanges load_before_waits",
    "cases/scaled_rows/threads": "move_factors prefetch_copies",
    "mma/swish/arch=sm_100a": "use_sigmoid scale_products",
    "mma/unused": "dce",
    "mma/rmsnorm/M=777/N=1001/K=2049/threads=all": "spread_rows",
    "mma/peak/M=512/N=520/K=264/arch=sm_100a": "split_accumulate",
    "mma/dynamic/M=777/N=1000/K=2056/arch=sm_100a/scheduler=dynamic": "claim_tiles",
    "memory_bound/accumulate": "add_in_place",
    "memory_bound/total": "walk_reduced_rows",
    "memory_bound/softmax_in_place": "share_variables",
    "top_k/router/130/1": "expand_top_k",
    "rows/layernorm_bias_backward/1024x65536": "defer_sums",
    "rows/cross_entropy_with_lse/1024x65536": "load_tiles_ahead",
    "mma/gather": "verify_lowerable",
    "mma/int8/arch=sm_103a": "verify_sums",
}
NAMED = {name: entry for entry, names in _ENTRIES.items() for name in names.split()}
"""By pass. A pass that only verifies rejects its entry; any other pass changes it."""
