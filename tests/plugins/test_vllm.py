"""The plugin for vLLM versus vLLM's recorded signatures, and on stubs of vLLM's classes."""

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.plugins import signatures
from tests.plugins.signatures import PLUGIN, RECORD, attributes, methods, plugin
from tests.quantized.test_checkpoints import gptq

NAMES = json.loads(RECORD.read_text())["names"]
N, K, G = 48, 128, 32  # of `gptq`
NUMBERS = count()


def derived() -> list[tuple[ast.ClassDef, dict[str, Any]]]:
    """Classes of the plugin, and the records of their base classes."""
    return [
        (node, NAMES[file.defined[ast.unparse(node.bases[0])]])
        for file in plugin().values()
        for node in file.tree.body
        if isinstance(node, ast.ClassDef)
    ]


def test_overrides_have_the_signatures_of_vllm() -> None:
    assert len(derived()) == 3
    for node, base in derived():
        own = {name: x for name, x in methods(node).items() if name != "__init__"}
        for name, method in own.items():
            wanted = base["methods"][name].replace("abstractmethod ", "")
            given = signatures.signature(method)
            assert wanted in (given, "(self, *args, **kwargs)"), f"{node.name}.{name}"
        assert own.keys() >= {name for name, x in base["methods"].items() if "abstract" in x}


def test_plugin_uses_names_of_vllm() -> None:
    assert signatures.imported() <= NAMES.keys()
    for node, base in derived():
        own = attributes([node], ast.Store) | methods(node).keys()
        known = own | base["methods"].keys() | {*base["attributes"].split()}
        assert attributes([node], ast.Load) <= known, node.name
    calls = [x for f in plugin().values() for x in ast.walk(f.tree) if isinstance(x, ast.Call)]
    named = {path.rpartition(".")[2]: path for path in NAMES}
    of_vllm = [(named.get(ast.unparse(call.func)), call) for call in calls]
    for path, call in ((path, call) for path, call in of_vllm if path and call.keywords):
        given = {x.arg for x in call.keywords if x.arg}
        assert given <= {*NAMES[path]["keywords"].split()}, path


@pytest.mark.registry
def test_record_equals_signatures_of_the_wheel(tmp_path) -> None:
    version = json.loads(RECORD.read_text())["vllm"]
    wheel = os.environ.get("VLLM_WHEEL")
    if wheel is None:
        options = "--no-deps", "--only-binary=:all:", "--platform=manylinux_2_28_x86_64"
        command = [sys.executable, "-m", "pip", "download", "-q", *options, "-d", tmp_path]
        if subprocess.run([*command, f"vllm=={version}"], check=False).returncode:
            pytest.skip(f"no wheel of vllm {version}")
        (wheel,) = tmp_path.glob("*.whl")
    assert signatures.recorded(Path(wheel)) == json.loads(RECORD.read_text())


def stubs(torch: Any) -> dict[str, Any]:
    class Parameter(torch.nn.Parameter):
        def __new__(cls, data: Any, **attributes: Any) -> Any:
            made = super().__new__(cls, data, requires_grad=False)
            made.given = attributes
            return made

    class RMSNorm(torch.nn.Module):
        def __init__(self, size: int, has_weight: bool = True, part: int | None = None) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(size, dtype=torch.bfloat16) + 0.5)
            self.variance_epsilon, self.variance_size_override = 1e-3, part
            self.has_weight = has_weight

        @classmethod
        def register_oot(cls, derived: type) -> type:
            return derived

        def forward_cuda(self, x: Any, residual: Any = None) -> Any:
            return "vLLM's kernel"

    class Base:
        """QuantizationConfig and LinearMethodBase."""

    classes = dict(LinearBase=torch.nn.Module, QuantizationConfig=Base, RMSNorm=RMSNorm)
    classes |= dict(LinearMethodBase=Base, UnquantizedLinearMethod=type("Unquantized", (Base,), {}))
    classes |= dict(register_quantization_config=lambda name: lambda cls: cls)
    classes |= dict(register_weight_loader_v2_supported_method=lambda cls: cls)
    return {path: classes.get(path.rpartition(".")[2], Parameter) for path in NAMES}


@pytest.fixture(scope="module")
def modules(import_optional) -> Iterator[tuple[Any, Any, Any]]:
    """torch, and the plugin's modules on stubs."""
    torch = import_optional("torch")
    with pytest.MonkeyPatch.context() as patch:
        for path, stub in stubs(torch).items():
            *parts, last = path.split(".")
            for end in range(len(parts)):
                name = ".".join(parts[: end + 1])
                patch.setitem(sys.modules, name, sys.modules.get(name, ModuleType(name)))
            setattr(sys.modules[".".join(parts)], last, stub)
        patch.syspath_prepend(PLUGIN.parent)
        project = tomllib.loads((PLUGIN.parent / "pyproject.toml").read_text())["project"]
        module, function = project["entry-points"]["vllm.general_plugins"]["wsdsl"].split(":")
        getattr(importlib.import_module(module), function)()
        yield (torch, *(sys.modules[f"wsdsl_vllm.{name}"] for name in ("linear", "rmsnorm")))
        for name in ("wsdsl_vllm", "wsdsl_vllm.linear", "wsdsl_vllm.rmsnorm"):
            del sys.modules[name]


@pytest.mark.parametrize("shape", [(5, 64), (3, 2, 64)])
def test_rmsnorm_of_sum_returns_result_and_residual(shape, modules) -> None:
    torch, _, rmsnorm = modules
    torch.manual_seed(0)
    x, residual = (torch.randn(*shape[:-1], 80).bfloat16()[..., :64] for _ in range(2))
    for has_weight in (True, False):
        norm = rmsnorm.WsdslRMSNorm(64, has_weight)
        for row, y in (
            (x, norm.forward_cuda(x)),
            (x + residual, (both := norm.forward_oot(x, residual))[0]),
        ):
            wide = row.double()
            wanted = wide * (wide.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
            wanted = wanted * norm.weight.double() if has_weight else wanted
            torch.testing.assert_close(y.double(), wanted, rtol=1e-2, atol=1e-3)
        assert torch.equal(both[1], x + residual)
    assert rmsnorm.WsdslRMSNorm(64, part=32).forward_cuda(x) == "vLLM's kernel"


def loaded(modules: Any, config: dict[str, Any], tensors: dict[str, Any], dtype: Any) -> Any:
    """A layer with these parameters, and its quantization method."""
    torch, linear, _ = modules
    layer = torch.nn.Module()
    name = f"model.layer{next(NUMBERS)}"
    method = linear.WsdslConfig.from_config(config).get_quant_method(layer, name)
    method.create_weights(layer, K, [N // 3, N - N // 3], K, N, dtype, weight_loader="loader")
    found = dict(layer.named_parameters())
    assert found.keys() == tensors.keys()
    for name, x in tensors.items():
        assert found[name].given["weight_loader"] == "loader"
        found[name].data.copy_(torch.from_numpy(np.array(x)))
    method.process_weights_after_loading(layer)
    assert not dict(layer.named_parameters())
    return layer, method


def check_product(modules: Any, layer: Any, method: Any, dtype: Any) -> None:
    torch, *_ = modules
    torch.manual_seed(0)
    torch.compiler.reset()
    bias = torch.randn(N, dtype=dtype)
    run = torch.compile(lambda x: method.apply(layer, x, bias), fullgraph=True, backend="aot_eager")
    for rows in (1, 5):
        x = torch.randn(rows, K).to(dtype)
        weights = layer.wsdsl_weights.dequantize("f64")
        wanted, most = (f(x.double()) @ f(weights).T + f(bias) for f in (torch.clone, torch.abs))
        assert ((run(x).double() - wanted).abs() <= 0.005 * most).all()
        assert torch.equal(run(x), method.apply(layer, x, bias))


@pytest.mark.parametrize("dtype", ["i4", "nvfp4"])
def test_linear_layer_of_16_bits_is_quantized(dtype, modules) -> None:
    torch, *_ = modules
    values = np.random.default_rng(1).standard_normal((N, K), np.float32)
    config = {"quant_method": "wsdsl", "dtype": dtype, "group_size": G}
    layer, method = loaded(modules, config, {"weight": values}, torch.bfloat16)
    given = torch.from_numpy(values)
    torch.testing.assert_close(layer.wsdsl_weights.dequantize(), given, rtol=0.15, atol=0.3)
    check_product(modules, layer, method, torch.bfloat16)


@pytest.mark.parametrize(
    ("bits", "options"),
    [(4, {}), (4, {"sym": False}), (8, {"sym": False}), (4, {"checkpoint_format": "gptq_v2"})],
)
def test_linear_layer_of_gptq_is_loaded(bits, options, modules) -> None:
    torch, *_ = modules
    offset = 0 if options.get("checkpoint_format") == "gptq_v2" else 1
    tensors, values = gptq(bits, offset, zeros=1 << bits - 1 if options.get("sym", True) else None)
    del tensors["g_idx"]  # vLLM drops it
    config = {"quant_method": "gptq", "bits": bits, "group_size": G} | options
    layer, method = loaded(modules, config, tensors, torch.float16)
    assert np.array_equal(layer.wsdsl_weights.dequantize("f64").numpy(), values)
    check_product(modules, layer, method, torch.float16)


def test_unsupported_layers_and_checkpoints(modules) -> None:
    torch, linear, _ = modules
    config = {"quant_method": "gptq", "bits": 4, "group_size": G}
    for wrong in {"bits": 3}, {"desc_act": True}, {"dynamic": {"-:": {}}}:
        with pytest.raises(ValueError, match="expected GPTQ of 4 or 8 bits"):
            linear.WsdslConfig.from_config(config | wrong)
    made = linear.WsdslConfig.from_config(config | {"modules_to_not_convert": ["head"]})
    layer = torch.nn.Module()
    assert type(made.get_quant_method(layer, "m.head")).__name__ == "Unquantized"
    assert made.get_quant_method("no linear layer", "m.attention") is None
    sizes = 48, [N], 48, N, torch.float16
    with pytest.raises(ValueError, match=r"48 rows of a rank of 'm\.up' are not groups of 32"):
        made.get_quant_method(layer, "m.up").create_weights(layer, *sizes, weight_loader=None)
    other = torch.nn.Module()
    with pytest.raises(ValueError, match=r"two layers have the name 'm\.up'"):
        made.get_quant_method(other, "m.up").create_weights(other, *sizes, weight_loader=None)
    choose = linear.WsdslConfig.override_quantization_method
    assert choose(config, "wsdsl") == "wsdsl" and choose(config, None) is None
