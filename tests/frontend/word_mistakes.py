"""Kernels that use words for rows and for bits where these do not fit."""

from tests.frontend.mistakes import body

WORD_MISTAKES = {
    "blocks": body("""
C[m, n] = max(A[m, :], per=32) + sum(A[m, :], over=K, per=0)
C[m, n] = min(A[m, :], over=K, per=alpha) + argmax(A[m, :], over=K, per=2)
C[m, n] = sum(cumsum(A[m, :]), over=K) + cumsum(alpha, over=m)
"""),
    "topk": body("""
v, i = topk(A[m, :], 8, over=K)
v, i = topk(A[m, :], K, over=K)
v, i = topk(A[m, :], over=K)
v, i = topk(A[m, :], M, alpha, alpha, over=K)
C[m, n] = topk(A[m, :], M, over=K)
"""),
    "bits_of_floats": body("""
C[m, n] = cast(popcount(alpha), f32) + cast(mulhi(alpha, 2.0), f32)
C[m, n] = cast(mulhi(cast(r[m], u8), 3) + cast(mulhi(r[m]), u8), f32)
"""),
}
