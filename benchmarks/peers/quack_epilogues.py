"""What follows the product, for QuACK: functions of one element of the accumulator."""

from quack.activation import gelu_erf
from quack.epilogue import gemm_epilogue
from quack.epilogue.ops import ColVecLoad, RowVecLoad


@gemm_epilogue(ops={"bias": RowVecLoad("bias")})
def bias_gelu_residual(acc, c, bias):
    return {"D": gelu_erf(acc + bias) + c}


@gemm_epilogue(ops={"a_scale": ColVecLoad("a_scale"), "b_scale": RowVecLoad("b_scale")})
def rows_scaled(acc, a_scale, b_scale):
    return {"D": acc * a_scale * b_scale}
