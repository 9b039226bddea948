"""Samples of the ops on tensor memory."""

TENSOR_SAMPLES: dict[str, tuple[str, str]] = {
    "allocate_tensor_memory": (
        "",
        "%t: tensor_memory<256> = allocate_tensor_memory(offset=229480)",
    ),
    "free_tensor_memory": ("%t: tensor_memory<256>", "free_tensor_memory(memory=%t)"),
    "tensor_columns": (
        "%t: tensor_memory<256>",
        '%sums: columns<64 x 2> = tensor_columns(label="sums", memory=%t, first=128)',
    ),
    "tensor_product": (
        "%sums: columns<64 x 2>, %s: state, %a: smem_descriptor, %b: smem_descriptor, %c: bool",
        "tensor_product(sums=%sums, state=%s, column=32, a=%a, b=%b, accumulate=%c, "
        'dtype="f8e4m3", b_dtype="f8e5m2", rows=128, columns=32, k=64)',
    ),
    "tensor_commit": ("%b: mbarrier<4>, %s: state", "tensor_commit(barriers=%b, state=%s)"),
    "tensor_load": (
        "%sums: columns<64 x 2>, %s: state",
        "%x: acc<f32[64x32]> = tensor_load(sums=%sums, state=%s, column=32, half=1)",
    ),
    "tensor_store": (
        "%x: frag<bf16[64x64]>, %c: columns<64 x 2>, %s: state",
        "tensor_store(value=%x, columns=%c, state=%s, column=32, half=1)",
    ),
    "tensor_wait": ("%x: acc<f32[64x32]>", "%y: frag<f32[64x32]> = tensor_wait(loads=(%x,))"),
    "tensor_fence": ("", "tensor_fence(after=True)"),
    "store_scales": (
        "%c: columns<8 x 2>, %s: state, %x: shared<4096 x 4>, %r: state, %i: i32, %v: i32",
        "store_scales(scales=%c, state=%s, column=4, shared=%x, shared_state=%r, offset=2048, "
        "line=16, first=%i, valid=%v, rows=128, words=2)",
    ),
    "tensor_copy": (
        "%c: columns<8 x 1>, %s: state, %x: shared<40960 x 4>, %r: state",
        "tensor_copy(scales=%c, state=%s, column=4, shared=%x, shared_state=%r, offset=32768, "
        "rows=256, words=2)",
    ),
    "tensor_store_wait": ("", "tensor_store_wait()"),
}
