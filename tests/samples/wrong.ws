@kernel
def linear(X: bf16[M, K], W: bf16[N, K], bias: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[k, n]
        Y[m, n] = relu(acc + baias[n])
