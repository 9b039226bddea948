"""One sample of every op, by name: (the values it uses, its text as the printer writes it)."""

from tests.ir.tensor_samples import TENSOR_SAMPLES
from tests.ir.word_samples import WORD_SAMPLES

SAMPLES: dict[str, tuple[str, str]] = WORD_SAMPLES | {
    # tile_ops
    "for_tiles": (
        "%zero: f32[m], %i: i32, %j: i32",
        "%end: f32[m] = for_tiles(index=%k: axis<k of K by 64>, start=%i, stop=%j, "
        "init=(%zero,), args=(%acc: f32[m],)) {\n  yield(values=(%acc,))\n}",
    ),
    "for_each": (
        "%C: tensor<f32[B]>, %x: f32",
        'for_each(dim="B", index=%b: i32) {\n'
        "  store(tensor=%C, index=(%b,), value=%x)\n  yield()\n}",
    ),
    "if": (
        "%c: bool, %x: f32, %y: f32",
        "%r: f32 = if(cond=%c) {\n  yield(values=(%x,))\n} {\n  yield(values=(%y,))\n}",
    ),
    "yield": ("%x: f32[m, n], %y: state", "yield(values=(%x, %y))"),
    "whole": ("", "%d: axis<D of D by 128 columns> = whole()"),
    "load": (
        "%A: tensor<bf16[B, M, 128]>, %b: i32, %m: axis<m of M by 64 rows>, %r: i32[n]",
        "%a: bf16[m, n] = load(tensor=%A, index=(%b, %m, %r))",
    ),
    "store": (
        "%C: tensor<f16[M]>, %m: axis<m of M>, %x: f32[m]",
        "store(tensor=%C, index=(%m,), value=%x, accumulate=True)",
    ),
    "contract": (
        "%a: bf16[m, k], %b: bf16[n, k], %acc: f32[m, n]",
        "%s: f32[m, n] = contract(a=%a, b=%b, acc=%acc, blocks=(0, 1), depth=(0, 32))",
    ),
    "map": (
        "%a: f32[m], %b: f32[n], %c: f32",
        '%s: f32[m, n] = map(fn="fma", args=(%a, %b, %c))',
    ),
    "cast": ("%x: frag<i32[64x128]>", "%y: frag<i8[64x128]> = cast(x=%x, saturate=True)"),
    "bitcast": ("%x: u16[n, k]", "%y: bf16[n, k] = bitcast(x=%x)"),
    "reduce": ("%x: f32[m, n]", '%y: f32[m] = reduce(fn="max", x=%x, axis="n")'),
    "reduce_blocks": (
        "%x: f32[m, n]",
        '%y: f32[m, n] = reduce_blocks(fn="max", x=%x, axis="n", size=32)',
    ),
    "top_k": (
        "%x: f32[m, n], %K: axis<K of K>",
        '%i: i32[m, K] = top_k(x=%x, axis="n", into=%K, places=True)',
    ),
    "scan": ("%x: f32[m, n]", '%y: f32[m, n] = scan(x=%x, axis="n")'),
    "constant": ("", "%x: f32 = constant(value=-inf)"),
    "full": ("%x: f32", "%y: f32[m, n] = full(value=%x)"),
    "index": ("%m: axis<m of M>", "%i: i32[m] = index(axis=%m)"),
    "end": ("%m: axis<m of M>", "%i: i32 = end(axis=%m)"),
    "block": ("%k: axis<k of K by 128>", "%i: i32 = block(axis=%k, size=128)"),
    "lookup": ("%t: tensor<u8[16]>, %i: u4[n, k]", "%x: u8[n, k] = lookup(table=%t, i=%i)"),
    "dim_size": ("", '%n: i32 = dim_size(dim="N")'),
    # pipeline_ops
    "circular_buffer": (
        "",
        "%r: ring = circular_buffer(depth=4, layouts=((bf16[m, k], bf16[n, k]), (f16[n],)), "
        "parts=(64, 32))",
    ),
    "partition": (
        "",
        'partition(role="compute", num_warps=8, registers=232) {\n  sync_warp()\n}',
    ),
    "for_work": (
        "",
        "for_work(index=(%b: i32, %m: axis<m of M by 128>, %n: axis<n of N by 256>), "
        'dims=("B", "M", "N"), scheduler="grid", swizzle=8) {\n}',
    ),
    "finish_tile": (
        "%acc: f32[m, n], %s: i32, %b: i32, %e: i32, %p: i32, %q: i32, %C: tensor<f32[M, N]>, "
        "%m: axis<m of M>, %n: axis<n of N>",
        'finish_tile(sums=(%acc,), slot=%s, begin=%b, end=%e, contraction="K", reduction='
        '"parallel", part=%p, parts=%q, args=(%x: f32[m, n],)) {\n'
        "  store(tensor=%C, index=(%m, %n), value=%x)\n}",
    ),
    "exchange_rows": (
        "%x: f32[m]",
        '%x_0: f32[m], %x_1: f32[m] = exchange_rows(x=(%x,), axis="n", ctas=2)',
    ),
    "add_in_cluster": (
        "%acc: f32[m, n], %p: i32, %r: ring, %s: state",
        "%x: f32[m, n_slice] = add_in_cluster(sums=(%acc,), part=%p, sharing=2, barrier=8, "
        "ring=%r, state=%s)",
    ),
    "fold_rows": ("%x: f32[m, n]", '%y: f32[i, n] = fold_rows(fn="max", x=%x, axis="m")'),
    "rename_axes": ("%x: f32[m, n]", "%y: f32[i, j] = rename_axes(x=%x)"),
    "axis_at": ("%i: i32", "%m: axis<m of M by 128> = axis_at(start=%i)"),
    "producer_acquire": (
        "%r: ring, %s: state",
        "%slot: slot = producer_acquire(ring=%r, layout=1, state=%s)",
    ),
    "load_to_slot": (
        "%s: slot, %A: tensor<bf16[M, K]>, %m: axis<m of M>, %k: axis<k of K>",
        "load_to_slot(slot=%s, field=0, tensor=%A, index=(%m, %k))",
    ),
    "producer_commit": ("%s: slot", "producer_commit(slot=%s)"),
    "producer_tail": ("%r: ring, %s: state", "producer_tail(ring=%r, state=%s)"),
    "consumer_wait": ("%r: ring", "%s: slot = consumer_wait(ring=%r)"),
    "take_subtiles": (
        "%r: ring, %s: state",
        "%x: bf16[m, n], %y: f32[n] = take_subtiles(ring=%r, pingpong_index=1, num_pingpong=2, "
        "state=%s)",
    ),
    "commit_products": ("", "commit_products()"),
    "materialize": ("%a: f32[m, n], %b: bf16[m, n]", "materialize(values=(%a, %b))"),
    "skip_slot": ("%r: ring", "skip_slot(ring=%r)"),
    "no_slot": ("%r: ring", "%s: slot = no_slot(ring=%r)"),
    "slot_tile": ("%s: slot", "%a: smem<bf16[m, k]> = slot_tile(slot=%s, field=1)"),
    "tile_in_shared": (
        "%x: shared<32768 x 4>, %s: state",
        "%a: smem<bf16[m, k]> = tile_in_shared(shared=%x, offset=16384, state=%s)",
    ),
    "subtiles_in_shared": (
        "%x: shared<16384 x 2>, %l: shared<256 x 2>, %s: state, %f: mbarrier<2>, %e: mbarrier<2>",
        "%v: bf16[m, n], %w: f32[n] = subtiles_in_shared(shared=(%x, %l), offsets=(0, 0), "
        "parts=(64, 64), state=%s, full=%f, empty=%e, pingpong_index=1, num_pingpong=2)",
    ),
    "slot_elements": (
        "%s: slot, %A: tensor<bf16[M, K]>, %m: axis<m of M>, %k: axis<k of K>",
        "%a: bf16[m, k] = slot_elements(slot=%s, field=0, tensor=%A, index=(%m, %k))",
    ),
    "elements_in_shared": (
        "%x: shared<32768 x 4>, %s: state, %A: tensor<bf16[M, K]>, %m: axis<m of M>, "
        "%k: axis<k of K>",
        "%a: bf16[m, k] = elements_in_shared(shared=%x, offset=16384, state=%s, tensor=%A, "
        "index=(%m, %k))",
    ),
    "slot_values": (
        "%s: slot, %i: i32",
        "%a: f32[n] = slot_values(slot=%s, field=2, every=128, stride=4, last=%i)",
    ),
    "values_in_shared": (
        "%x: shared<32768 x 4>, %s: state",
        "%a: f32[m] = values_in_shared(shared=%x, offset=16384, bytes=512, state=%s)",
    ),
    "store_to_slot": (
        "%s: slot, %v: bf16[n, k], %k: axis<k of K>",
        "store_to_slot(slot=%s, field=0, value=%v, summed=%k)",
    ),
    "store_in_shared": (
        "%v: bf16[n, k], %k: axis<k of K>, %x: shared<32768 x 4>, %s: state",
        'store_in_shared(value=%v, summed=%k, shared=%x, offset=16384, state=%s, swizzle="128B")',
    ),
    "consumer_release": ("%s: slot", "consumer_release(slot=%s)"),
    # barrier_ops
    "launch_narrowing": ("", "%n: i32 = launch_narrowing(widths=8)"),
    "launch_grid": ("", 'launch_grid(tiles=(("M", 128), ("N", 256)), scheduler="grid")'),
    "for_range": (
        "%a: i32, %b: i32, %c: i32, %s: state",
        "%e: state = for_range(index=%i: i32, start=%a, stop=%b, step=%c, init=(%s,), "
        "args=(%t: state,)) {\n  yield(values=(%t,))\n}",
    ),
    "elect": ("", "elect() {\n  sync_warp()\n}"),
    "cta_index": ("", "%i: i32 = cta_index()"),
    "num_ctas": ("", "%i: i32 = num_ctas()"),
    "claim_cluster": (
        "%x: shared<16 x 3>, %s: state, %b: mbarrier<3>",
        "claim_cluster(shared=%x, state=%s, barriers=%b, ctas=2)",
    ),
    "claimed_cluster": (
        "%x: shared<16 x 3>, %s: state",
        "%i: i32 = claimed_cluster(shared=%x, state=%s, ctas=2)",
    ),
    "warpgroup_index": ("", "%i: i32 = warpgroup_index()"),
    "set_max_registers": ("", "set_max_registers(count=40, increase=False)"),
    "allocate_barriers": (
        "",
        '%full: mbarrier<4> = allocate_barriers(label="full", arrivals=1, offset=163840)',
    ),
    "initialize_barriers": ("%b: mbarrier<4>", "initialize_barriers(barriers=%b)"),
    "fence_barrier_init": ("", "fence_barrier_init()"),
    "cluster_index": ("", "%i: i32 = cluster_index()"),
    "num_clusters": ("", "%i: i32 = num_clusters()"),
    "cta_rank": ("", "%i: i32 = cta_rank()"),
    "sync_cta": ("", "sync_cta()"),
    "wait_predecessor": ("", "wait_predecessor()"),
    "launch_dependents": ("", "launch_dependents()"),
    "sync_cluster": ("", "sync_cluster(relaxed=True)"),
    "named_barrier_sync": ("", "named_barrier_sync(barrier=1, num_warpgroups=2)"),
    "named_barrier_arrive": (
        "%i: i32",
        "named_barrier_arrive(barrier=1, num_warpgroups=2, item=%i, num=2)",
    ),
    "sync_warp": ("", "sync_warp()"),
    "initial_state": ("", "%s: state = initial_state(parity=1)"),
    "advance": ("%s: state", "%t: state = advance(state=%s, num=4)"),
    "wait_barrier": ("%b: mbarrier<4>, %s: state", "wait_barrier(barriers=%b, state=%s)"),
    "arrive_barrier": (
        "%b: mbarrier<4>, %s: state, %p: bool, %r: i32",
        "arrive_barrier(barriers=%b, state=%s, pred=%p, cta=%r, each_thread=True)",
    ),
    "arrive_expect_tx": (
        "%b: mbarrier<4>, %s: state",
        "arrive_expect_tx(barriers=%b, state=%s, tx_bytes=32768)",
    ),
    "fence_async_proxy": ("", "fence_async_proxy()"),
    "arrive_flag": (
        "%f: tensor<i32[P]>, %i: i32",
        "arrive_flag(tensor=%f, index=(%i,), amount=-3, by=%i, wrap=%i, release=False)",
    ),
    "wait_flag": (
        "%f: tensor<i32[P]>, %i: i32, %n: i32",
        "wait_flag(tensor=%f, index=(%i,), count=%n)",
    ),
    # memory_ops
    "allocate_shared": ("", '%x: shared<32768 x 4> = allocate_shared(label="slots", offset=0)'),
    "allocate_global": (
        "",
        "%flags: tensor<i32[lines]> = allocate_global(each=2, zeroed=True, fragments=True)",
    ),
    "make_tensor_map": (
        "%A: tensor<bf16[M, K]>",
        '%a: tensor_map = make_tensor_map(tensor=%A, box=(128, 64), swizzle="128B")',
    ),
    "prefetch_tensor_map": ("%a: tensor_map", "prefetch_tensor_map(map=%a)"),
    "prefetch_box": (
        "%a: tensor_map, %m: i32, %k: i32",
        "prefetch_box(map=%a, coordinates=(%m, %k))",
    ),
    "tma_load": (
        "%a: tensor_map, %m: i32, %k: i32, %x: shared<32768 x 4>, %s: state, %b: mbarrier<4>, "
        "%c: i32",
        "tma_load(map=%a, coordinates=(%m, %k), shared=%x, offset=16384, state=%s, barriers=%b, "
        "multicast=%c)",
    ),
    "thread_load": (
        "%A: tensor<f16[M, K]>, %m: i32, %k: i32, %x: shared<32768 x 4>, %s: state",
        "thread_load(tensor=%A, coordinates=(%m, %k), row_dim=0, rows=128, columns=64, "
        'swizzle="128B", shared=%x, state=%s)',
    ),
    "clear_panels": (
        "%b: i32, %e: i32, %x: shared<32768 x 4>, %s: state",
        "clear_panels(shared=%x, state=%s, begin=%b, end=%e, lines=True, "
        'dtype="f16", rows=128, columns=64, swizzle="128B")',
    ),
    "prefetch_tile": (
        "%A: tensor<f16[M, K]>, %m: i32, %k: i32",
        "prefetch_tile(tensor=%A, coordinates=(%m, %k), row_dim=0, rows=128, columns=64)",
    ),
    "load_panels": (
        "%x: shared<17408 x 4>, %s: state, %row: i32",
        "%v: frag<bf16[64x64]> = load_panels(shared=%x, offset=1024, state=%s, start=%row, "
        'rows=128, swizzle="128B")',
    ),
    "send_fragment": (
        "%v: frag<f32[64x32]>, %x: shared<16384 x 1>, %w: i32, %s: state, %b: mbarrier<1>, %c: i32",
        "send_fragment(value=%v, shared=%x, offset=8192, shift=%w, state=%s, barriers=%b, cta=%c)",
    ),
    "store_transposed": (
        "%x: frag<u8[64x128] lanes 16x8 tall 4>, %y: frag<u8[64x128] lanes 16x8 tall 4>, "
        "%s: shared<16384 x 2>, %i: i32",
        "store_transposed(parts=(%x, %y), shared=%s, item=%i, step=16)",
    ),
    "load_transposed": (
        "%s: shared<16384 x 2>, %i: i32",
        "%v: frag<u8[64x128] lanes 16x8> = load_transposed(shared=%s, item=%i, line=64, "
        "length=128, step=16)",
    ),
    "receive_fragment": (
        "%x: shared<16384 x 1>, %w: i32, %s: state",
        "%v: frag<f32[64x32]> = receive_fragment(shared=%x, offset=8192, shift=%w, state=%s)",
    ),
    "store_shared": (
        "%v: frag<bf16[64x64]>, %x: shared<8192 x 4>, %i: i32",
        'store_shared(value=%v, shared=%x, item=%i, swizzle="128B", transposed=True)',
    ),
    "tma_store": (
        "%c: tensor_map, %m: i32, %n: i32, %x: shared<8192 x 4>, %i: i32",
        "tma_store(map=%c, coordinates=(%m, %n), row_dim=0, shared=%x, item=%i, accumulate=True)",
    ),
    "thread_store": (
        "%C: tensor<bf16[M, N]>, %m: i32, %n: i32, %x: shared<8192 x 4>, %i: i32",
        "thread_store(tensor=%C, coordinates=(%m, %n), box=(16, 64), swizzle="
        '"128B", row_dim=0, shared=%x, item=%i, accumulate=True)',
    ),
    "tma_store_commit": ("", "tma_store_commit()"),
    "tma_store_wait": ("", "tma_store_wait(pending=0, read=False)"),
    "load_shared": (
        "%x: shared<32768 x 4>, %s: state, %f: i32, %i: frag<i32[64x1]>",
        "%a: frag<f32[64x1]> = load_shared(shared=%x, offset=1024, state=%s, bytes=512, first=%f, "
        "index=%i)",
    ),
    "load_global": (
        "%b: tensor<f32[N]>, %i: frag<i32[1x128]>",
        "%x: frag<f32[1x128]> = load_global(tensor=%b, index=(%i,), vector=2)",
    ),
    "store_global": (
        "%C: tensor<f32[M]>, %i: frag<i32[64x1]>, %v: frag<f32[64x1]>, %p: bool",
        "store_global(tensor=%C, index=(%i,), value=%v, accumulate=True, pred=%p)",
    ),
    # fragment_ops
    "matrix_operand": (
        "%x: shared<32768 x 4>, %s: state, %row: i32",
        "%a: smem_descriptor = matrix_operand(shared=%x, offset=16384, state=%s, start=%row, "
        'dtype="bf16", rows=64, columns=128, swizzle="128B", k_major=False)',
    ),
    "empty_accumulator": ("", "%acc: acc<f32[64x256]> = empty_accumulator()"),
    "as_accumulator": ("%x: frag<f32[64x256]>", "%acc: acc<f32[64x256]> = as_accumulator(x=%x)"),
    "wgmma_fence": ("", "wgmma_fence()"),
    "wgmma": (
        "%c: acc<f32[64x256]>, %a: smem_descriptor, %b: smem_descriptor, %p: bool",
        "%d: acc<f32[64x256]> = wgmma(acc=%c, a=%a, b=%b, accumulate=%p, "
        'dtype="bf16", k=64, b_k_major=False)',
    ),
    "wgmma_commit": ("", "wgmma_commit()"),
    "wgmma_wait": (
        "%c: acc<f32[64x256]>, %d: acc<f32[64x8]>, %a: frag<bf16[64x16] operand>",
        "%x: frag<f32[64x256]>, %y: frag<f32[64x8]> = wgmma_wait(pending=0, accumulators=(%c, %d), "
        "fragments=(%a,))",
    ),
    "zero_unless": (
        "%x: frag<f32[64x256]>, %p: bool",
        "%y: frag<f32[64x256]> = zero_unless(x=%x, cond=%p)",
    ),
    "slice": ("%x: frag<f32[64x256]>", "%y: frag<f32[64x64]> = slice(x=%x, start=192)"),
    "join": (
        "%x: frag<f32[64x64]>, %y: frag<f32[64x192]>",
        "%z: frag<f32[64x256]> = join(parts=(%x, %y))",
    ),
    "convert_layout": (
        "%x: frag<f8e4m3[64x128]>",
        "%a: frag<f8e4m3[64x128] operand> = convert_layout(x=%x)",
    ),
    "reduce_columns": (
        "%x: frag<f32[64x256]>",
        '%y: frag<f32[64x1]> = reduce_columns(fn="add", x=%x)',
    ),
    "scan_columns": ("%x: frag<f32[64x256]>", "%y: frag<f32[64x256]> = scan_columns(x=%x)"),
    "iota": ("%i: i32", "%r: frag<i32[64x1]> = iota(start=%i)"),
    # slots in tensor memory
    "sum_to_slot": ("%s: slot, %x: f32[m, n]", "sum_to_slot(slot=%s, field=0, value=%x)"),
    "sum_to_tensor": (
        "%c: columns<64 x 2>, %s: state, %x: f32[m, n]",
        "sum_to_tensor(sums=%c, column=0, state=%s, value=%x)",
    ),
    "scales_to_slot": (
        "%s: slot, %x: smem<f8e8m0[m, k]>, %k: axis<k of K by 128>",
        "scales_to_slot(slot=%s, field=1, value=%x, summed=%k, block=32)",
    ),
    "store_in_tensor": (
        "%x: bf16[m, k], %k: axis<k of K by 64>, %c: columns<32 x 2>, %s: state",
        "store_in_tensor(value=%x, summed=%k, columns=%c, column=0, state=%s)",
    ),
    "copy_scales": (
        "%x: smem<f8e8m0[m, k]>",
        "%y: smem<f8e8m0[m, k]> = copy_scales(value=%x, block=32)",
    ),
    "tile_in_tensor": (
        "%c: columns<8 x 2>, %s: state",
        "%x: smem<f8e8m0[m, k]> = tile_in_tensor(columns=%c, column=4, state=%s)",
    ),
    "slot_sum": (
        "%s: slot, %any: bool",
        "%x: f32[m, n] = slot_sum(slot=%s, field=0, started=%any)",
    ),
    "sum_in_tensor": (
        "%c: columns<64 x 2>, %s: state",
        "%x: f32[m, n] = sum_in_tensor(sums=%c, column=0, state=%s)",
    ),
}
SAMPLES |= TENSOR_SAMPLES
