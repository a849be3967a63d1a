#!/usr/bin/env python3
"""What bfloat16 costs the reference implementation (torch, transformers 5.x): its error against the float64 golden files.

    reference_bf16.py test/golden/dense test/golden/moe ...

For each golden model one forward and backward in bfloat16 on the golden batch and on the packed row (every document
alone); writes bf16.json beside the model: for "golden" and "packed" the relative error of "loss" and of every "grad.NAME"
(norm of the difference over the norm; the largest of eight runs that round differently); for "adamw" that of the losses of
five optimizer steps. GPU tests hold bf16 to 1.5 times these figures where they exceed the plain bounds.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
device = "cuda" if torch.cuda.is_available() else "cpu"


def golden_loss(model, case):
    more = {"output_router_logits": True} if "aux_loss" in case else {}
    ids, labels = case["input_ids"].to(device), case["labels"].to(device)
    return model(input_ids=ids, labels=labels, use_cache=False, **more).loss


def packed_loss(model, case):
    bounds, total = case["cu_seqlens"].tolist(), 0
    count = int((case["labels"] != -100).sum())
    for begin, end in zip(bounds, bounds[1:]):
        ids, labels = case["input_ids"][:, begin:end].to(device), case["labels"][:, begin:end].to(device)
        # A document's first label is -100 and the reference shifts by itself.
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        total = total + torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum")
    return total / count


SAMPLES = 8  # one run is one draw: a token near a tie of the router, or a sum near zero, rounds either way


def load(folder, sample):
    """The model in float32; after sample 0, weights move by 1/16 of what rounding them to bfloat16 does."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    generator = torch.Generator().manual_seed(sample)
    with torch.no_grad():
        for parameter in model.parameters() if sample else ():
            parameter.mul_(1 + 2.0**-13 * torch.randn(parameter.shape, generator=generator))
    return model.to(device).train()


def adamw(folder, batch, want, sample):
    """Relative errors of the losses of five steps of AdamW on float32 weights, forward and backward in bfloat16."""
    model = load(folder, sample)
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
        loss = golden_loss(model, batch)
        loss.backward()
        losses.append(loss.item())
        for copy, exact in zip(model.parameters(), master):
            exact.grad = copy.grad.float()
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        optimizer.step()
    return {str(i): abs(got - exact) / exact for i, (got, exact) in enumerate(zip(losses, want["loss"].tolist()))}


def measure(folder, loss_of, want, sample):
    """Relative errors of one forward and backward in bfloat16."""
    model = load(folder, sample).to(torch.bfloat16)
    loss = loss_of(model, want)
    loss.backward()
    errors = {"loss": abs(loss.item() - want["loss"].item()) / want["loss"].item()}
    for name, parameter in model.named_parameters():
        key = f"grad.{name}"
        if key in want and parameter.grad is not None:
            exact = want[key].double()
            errors[key] = ((parameter.grad.double().cpu() - exact).norm() / exact.norm().clamp_min(1e-12)).item()
    return errors


for folder in map(pathlib.Path, sys.argv[1:]):
    result = {}
    for name, loss_of in ("golden", golden_loss), ("packed", packed_loss):
        want = load_file(folder / f"{name}.safetensors")
        runs = [measure(folder, loss_of, want, sample) for sample in range(SAMPLES)]
        result[name] = {key: float(f"{max(run[key] for run in runs):.3g}") for key in runs[0]}
        gradients = [(error, key) for key, error in result[name].items() if key != "loss"]
        print(folder.name, name, f"loss {result[name]['loss']:.2e}, worst gradient", *(max(gradients) if gradients else "-"), device)
    batch, want = (load_file(folder / f"{name}.safetensors") for name in ("golden", "adamw"))
    runs = [adamw(folder, batch, want, sample) for sample in range(SAMPLES)]
    result["adamw"] = {key: float(f"{max(run[key] for run in runs):.3g}") for key in runs[0]}
    print(folder.name, "adamw", result["adamw"])
    (folder / "bf16.json").write_text(json.dumps(result, indent=1) + "\n")
