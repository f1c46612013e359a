"""Compiles the kernels for GPUs, which needs none, and prints what instructions each has, as JSON. Without TRITON_INTERPRET."""

import collections
import json
import re

import torch
import triton
from gradwire.codec import named
from gradwire.device import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = {"sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
# What is compiled of a kernel: its name in `steps`, and constants beside those of all.
VARIANTS = {
    "encode": ("encode", {"USED": False}),
    "encode what is used": ("encode", {"USED": True}),
    "encode_mean": ("encode_mean", {"ENCODE": True}),
    "mean": ("encode_mean", {"ENCODE": False}),
    "decode": ("decode", {}),
}
NAMES = ("q8:256", "q4:256", "3lc:1:320")
TYPES = {
    **dict.fromkeys(("gradient", "residual", "values"), "*bf16"),
    **dict.fromkeys(("messages", "received", "used"), "*u8"),
    **dict.fromkeys(("words", "received_words"), "*i32"),
    "mean": "*fp32",
}


def compiled(kernel, constants, target, **options):
    """The code of a kernel, as it is launched for tensors and lengths of a multiple of 16."""
    names = kernel.arg_names
    given = {(names.index(name),): value for name, value in constants.items() if name in names}
    types = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if name not in constants and name != "ranks"}
    source = ASTSource(fn=kernel, signature=types, constexprs=given, attrs=aligned)
    code = triton.compile(source, target=target, options={"num_warps": constants["num_warps"], **options}).asm
    return code["ptx"] if target.backend == "cuda" else code["amdgcn"]


def main():
    kernels.DEVICES = ("cpu",)
    for name in NAMES:
        found = kernels.kernels(named(name), torch.empty(0))
        for step, (kernel, more) in VARIANTS.items():
            for gpu, target in TARGETS.items():
                for options in (kernels.OPTIONS, {"enable_fp_fusion": True}):
                    if options != kernels.OPTIONS and (gpu == "sm_90" or step not in ("encode", "encode_mean")):
                        continue
                    code = compiled(found.steps[kernel], found.constants | more, target, **options)
                    instructions = re.findall(r"^\s*(?:@\S+\s+)?([a-z]\w*(?:\.\w+(?:::\w+)?)*)", code, re.M)
                    modes = re.findall(r"\.amdhsa_float_denorm_mode_32 (\d)", code)
                    print(json.dumps([name, step, gpu, options != kernels.OPTIONS, collections.Counter(instructions), modes]))


main()
