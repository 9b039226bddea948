"""A transformers Llama with random weights, whose linear layers and norms run wsdsl kernels.

`python -m benchmarks.clients.llama` prints medians of interleaved runs versus torch: ms per token
of greedy decoding, eager and compiled with a static cache, and warm prefill. `--tiny` is a smoke
test without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

from wsdsl.kernels import matmul, quantized, rmsnorm

PROMPT, TOKENS, ROUNDS = 777, 32, 21
SIZES = dict(
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=32000,
    max_position_embeddings=4096,
)
TINY = SIZES | dict(
    hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, vocab_size=64,
)  # fmt: skip


class Linear(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight.detach()

    def forward(self, x: torch.Tensor) -> Any:
        return matmul(x, self.weight.t())


class Quantized(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weights = quantized.quantize(weight.detach(), "i4", group=128)

    def forward(self, x: torch.Tensor) -> Any:
        return quantized.matmul(x, self.weights)


class Norm(nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight.detach(), norm.variance_epsilon

    def forward(self, x: torch.Tensor) -> Any:
        return rmsnorm(x, self.weight, eps=self.eps)


def replaced(model: nn.Module, linear: Callable[[torch.Tensor], nn.Module]) -> Any:
    """A copy of the model with kernels of wsdsl."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if isinstance(module, nn.Linear) and own != "lm_head":
            setattr(model.get_submodule(parent), own, linear(module.weight))
        elif type(module).__name__ == "LlamaRMSNorm":
            setattr(model.get_submodule(parent), own, Norm(module))
    return model


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(run: Callable[[], Any]) -> float:
    sync()
    start = time.perf_counter()
    run()
    sync()
    return 1e3 * (time.perf_counter() - start)


@torch.no_grad()
def decode(step: Any, cache: Any, token: torch.Tensor, tokens: int, begin: int) -> torch.Tensor:
    """Generate tokens greedily, one at a time."""
    for position in range(begin, begin + tokens):
        at = torch.full((1,), position, device=token.device)
        logits = step(
            input_ids=token, past_key_values=cache, cache_position=at, use_cache=True
        ).logits
        token = logits[:, -1:].argmax(-1)
    return token


@torch.no_grad()
def measure(models: dict[str, Any], ids: torch.Tensor, rounds: int, tokens: int) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {name: {} for name in models}

    def note(name: str, what: str, value: float) -> None:
        found[name].setdefault(what, []).append(value)

    for name, model in models.items():
        note(name, "first prefill", timed(partial(model, ids)))
    for number in range(rounds + 2):
        for name, model in models.items():
            prefill = timed(partial(model, ids))
            cache = DynamicCache()
            model(ids, past_key_values=cache, use_cache=True)
            run = partial(decode, model, cache, ids[:, -1:], tokens, ids.shape[1])
            per_token = timed(run) / tokens
            if number > 1:
                note(name, "prefill", prefill)
                note(name, "eager", per_token)
    return found


@torch.no_grad()
def measure_compiled(
    models: dict[str, Any], ids: torch.Tensor, rounds: int, tokens: int, mode: str
) -> dict[str, list[float]]:
    steps: dict[str, tuple[Any, Any]] = {}
    end = ids.shape[1]
    for name, model in models.items():
        cache = StaticCache(config=model.config, max_cache_len=end + tokens * (rounds + 2))
        at = torch.arange(end, device=ids.device)
        model(ids, past_key_values=cache, cache_position=at, use_cache=True)
        steps[name] = torch.compile(model, mode=mode, fullgraph=True), cache
    found: dict[str, list[float]] = {name: [] for name in steps}
    token = ids[:, -1:].clone()
    for number in range(rounds + 1):
        for name, (step, cache) in steps.items():
            run = partial(decode, step, cache, token, tokens, end)
            per_token = timed(run) / tokens
            found[name] += [per_token] if number else []
            if not number:
                print(f"{name}: first decoding {per_token * tokens / 1e3:.1f} s", flush=True)
        end += tokens
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--eager", action="store_true", help="skip torch.compile")
    options = parser.parse_args()
    torch.manual_seed(0)
    device, tiny = "cpu" if options.tiny else "cuda", options.tiny
    prompt, tokens, rounds = (3, 2, 1) if tiny else (PROMPT, TOKENS, options.rounds)
    base = LlamaForCausalLM(LlamaConfig(**(TINY if tiny else SIZES))).to(device).bfloat16().eval()
    models = {"torch": base, "wsdsl": replaced(base, Linear), "wsdsl i4": replaced(base, Quantized)}
    ids = torch.randint(0, base.config.vocab_size, (1, prompt), device=device)
    found: dict[str, Any] = measure(models, ids, rounds, tokens)
    if not options.eager:
        mode = "default" if tiny else "reduce-overhead"
        for name, times in measure_compiled(models, ids, rounds, tokens, mode).items():
            found[name]["compiled"] = times
    medians = {
        name: {what: statistics.median(times) for what, times in own.items()}
        for name, own in found.items()
    }
    for name, own in medians.items():
        for what, value in own.items():
            print(
                f"{name:10} {what:14} {value:9.3f} ms {value / medians['torch'][what]:6.3f} x torch"
            )
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(json.dumps({"gpu": where, "rounds": rounds, "medians": medians}))


if __name__ == "__main__":
    main()
