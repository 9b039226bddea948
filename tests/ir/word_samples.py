"""Samples of the ops of words in SMEM: counters, and what is left of rows."""

WORD_SAMPLES: dict[str, tuple[str, str]] = {
    "store_partials": (
        "%x: frag<f32[1x512] lanes 4x128>, %s: shared<32 x 1>, %p: i32, %b: mbarrier<1>, %t: state",
        'store_partials(fn="add", x=%x, shared=%s, part=%p, ctas=2, barriers=%b, state=%t)',
    ),
    "reduce_partials": (
        "%s: shared<32 x 1>",
        '%y: f32 = reduce_partials(fn="add", shared=%s, parts=8)',
    ),
    "clear_counters": (
        "%H: tensor<i32[B]>, %s: shared<8192 x 1>",
        "clear_counters(tensor=%H, shared=%s, extents=(64,), copies=32, by=4)",
    ),
    "add_counters": (
        "%H: tensor<f32[B, 4]>, %i: frag<i32[64x8]>, %c: i32, %x: f32, %s: shared<1024 x 1>",
        "add_counters(tensor=%H, index=(%i, %c), value=%x, shared=%s, extents=(64, 4))",
    ),
    "store_counters": (
        "%H: tensor<i32[B]>, %s: shared<8192 x 1>",
        "store_counters(tensor=%H, shared=%s, extents=(64,), copies=32, by=4)",
    ),
}
