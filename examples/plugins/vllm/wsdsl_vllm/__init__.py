"""vLLM plugin: quantized linear layers and RMSNorm by wsdsl."""


def register() -> None:
    """Register both classes; vLLM calls this in each of its processes."""
    from wsdsl_vllm import linear, rmsnorm  # noqa: F401
