#!/usr/bin/env python3
"""What bfloat16 costs the reference implementation (torch, transformers 5.x): bf16.json beside a golden model.

    reference_bf16.py test/golden/dense test/golden/moe ...

One step in bfloat16 is one draw from a wide distribution: at the wide weights of the golden models rounding the weights
alone, with all else in float32, moves the gradients of early layers of `moe` by 0.04 to 1.7 of their norm (a token near a
tie of the router changes experts, and gradients of gates nearly cancel). So steps are compared over DRAWS models whose
weights are up to 2^-6 apart from the golden ones, the same in GPU tests (test/gpu/GoldenTest.cpp) and here. The file has, for
"golden" (the golden batch) and "packed" (every document alone): the mean relative error of "loss" and "aux_loss", and for
every "grad.NAME" the geometric mean of |difference| / |gradient|, against float32 on the same weights; for "adamw" the
largest relative error of the losses of five optimizer steps, of eight draws.
"""
import json
import pathlib
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
device = "cuda" if torch.cuda.is_available() else "cpu"
DRAWS = {"moe": 24}  # where errors spread most; enough for 1.5 times the mean to be no chance


def golden_loss(model, case):
    more = {"output_router_logits": True} if "aux_loss" in case else {}
    ids, labels = case["input_ids"].to(device), case["labels"].to(device)
    out = model(input_ids=ids, labels=labels, use_cache=False, **more)
    return {"loss": out.loss} | ({"aux_loss": out.aux_loss} if more else {})


def packed_loss(model, case):
    bounds, total = case["cu_seqlens"].tolist(), 0
    count = int((case["labels"] != -100).sum())
    for begin, end in zip(bounds, bounds[1:]):
        ids, labels = case["input_ids"][:, begin:end].to(device), case["labels"][:, begin:end].to(device)
        # A document's first label is -100 and the reference shifts by itself.
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        total = total + torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum")
    return {"loss": total / count}


def moved(name, weights, draw):
    """Weights of a draw: each times 1 + u / 64, u uniform in [-1, 1); bit for bit those of GoldenTest.cpp."""
    seed = draw
    for c in name.encode():
        seed = (seed * 31 + c) % 2**64
    steps = numpy.arange(1, weights.numel() + 1, dtype=numpy.uint64)
    z = numpy.uint64(seed) + steps * numpy.uint64(0x9E3779B97F4A7C15)  # splitmix64
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    uniform = (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
    factors = torch.from_numpy(1 + (2 * uniform - 1) / 64).reshape(weights.shape)
    return (weights.double() * factors).float()


def load(folder, draw):
    """The model in float32; draw 0 is the golden one."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters() if draw else ():
            parameter.copy_(moved(name, parameter, draw))
    return model.to(device).train()


def adamw(folder, batch, want, draw):
    """Relative errors of the losses of five steps of AdamW on float32 weights, forward and backward in bfloat16."""
    model = load(folder, 0)
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():  # 1/16 of what rounding to bfloat16 does: `want` is that of the golden weights
        for parameter in model.parameters() if draw else ():
            parameter.mul_((1 + 2.0**-13 * torch.randn(parameter.shape, generator=generator)).to(device))
    master = [p.detach().clone() for p in model.parameters()]
    model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW([{"params": [p for p in master if (p.dim() >= 2) == decays], "weight_decay": 0.1 * decays}
                                   for decays in (True, False)], lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(5):
        with torch.no_grad():
            for copy, exact in zip(model.parameters(), master):
                copy.copy_(exact)
                copy.grad = None
        loss = golden_loss(model, batch)["loss"]
        loss.backward()
        losses.append(loss.item())
        for copy, exact in zip(model.parameters(), master):
            exact.grad = copy.grad.float()
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        optimizer.step()
    return {str(i): abs(got - exact) / exact for i, (got, exact) in enumerate(zip(losses, want["loss"].tolist()))}


def step(model, loss_of, case):
    losses = loss_of(model, case)
    losses["loss"].backward()
    grads = {f"grad.{name}": p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {name: loss.detach().double() for name, loss in losses.items()} | grads


def measure(folder, loss_of, case, draw):
    """Relative errors of one forward and backward in bfloat16."""
    exact = step(load(folder, draw), loss_of, case)
    got = step(load(folder, draw).to(torch.bfloat16), loss_of, case)
    return {name: ((got[name] - exact[name]).norm() / exact[name].norm()).item() for name in exact}


def mean(name, errors):
    if not name.startswith("grad."):
        return sum(errors) / len(errors)
    return float(numpy.exp(numpy.mean(numpy.log(errors))))


for folder in map(pathlib.Path, sys.argv[1:]):
    result = {"draws": DRAWS.get(folder.name, 16)}
    for name, loss_of in ("golden", golden_loss), ("packed", packed_loss):
        case = load_file(folder / f"{name}.safetensors")
        runs = [measure(folder, loss_of, case, draw) for draw in range(result["draws"])]
        result[name] = {key: float(f"{mean(key, [run[key] for run in runs]):.3g}") for key in runs[0]}
        worst = max((error, key) for key, error in result[name].items() if key.startswith("grad."))
        print(folder.name, name, f"loss {result[name]['loss']:.2e}, worst gradient", *worst, device, flush=True)
    batch, want = (load_file(folder / f"{name}.safetensors") for name in ("golden", "adamw"))
    runs = [adamw(folder, batch, want, draw) for draw in range(8)]
    result["adamw"] = {key: float(f"{max(run[key] for run in runs):.3g}") for key in runs[0]}
    print(folder.name, "adamw", result["adamw"], flush=True)
    (folder / "bf16.json").write_text(json.dumps(result, indent=1) + "\n")
