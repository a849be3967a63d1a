#!/usr/bin/env python3
"""What bfloat16 costs the reference implementation (torch, transformers 5.x): its error against the float64 golden files.

    reference_bf16.py test/golden/dense test/golden/moe ...

For each golden model one forward and backward in bfloat16 on the golden batch and on the packed row (every document
alone); writes bf16.json beside the model: for "golden" and "packed" the relative error of "loss" and of every "grad.NAME"
(norm of the difference over the norm). GPU tests hold bf16 to 1.5 times these figures where they exceed the plain bounds.
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


for folder in map(pathlib.Path, sys.argv[1:]):
    result = {}
    for name, loss_of in ("golden", golden_loss), ("packed", packed_loss):
        want = load_file(folder / f"{name}.safetensors")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
        model.train()
        loss = loss_of(model, want)
        loss.backward()
        errors = {"loss": abs(loss.item() - want["loss"].item()) / want["loss"].item()}
        for parameter_name, parameter in model.named_parameters():
            key = f"grad.{parameter_name}"
            if key in want and parameter.grad is not None:
                exact = want[key].double()
                errors[key] = ((parameter.grad.double().cpu() - exact).norm() / exact.norm().clamp_min(1e-12)).item()
        result[name] = {key: float(f"{error:.3g}") for key, error in errors.items()}
        gradients = [(error, key) for key, error in result[name].items() if key != "loss"]
        print(folder.name, name, f"loss {errors['loss']:.2e}, worst gradient", *(max(gradients) if gradients else "-"), device)
    (folder / "bf16.json").write_text(json.dumps(result, indent=1) + "\n")
