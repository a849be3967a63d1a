#!/usr/bin/env python3
"""What bfloat16 costs the reference implementation (torch, transformers 5.x): its error against the float64 golden files.

    reference_bf16.py test/golden/dense test/golden/moe ...

For each golden model one forward and backward in bfloat16 on the golden batch; writes bf16.json beside the model, which
maps "loss" and every "grad.NAME" to its relative error (norm of the difference over the norm). GPU tests hold bf16
gradients to 1.5 times these figures where they exceed 2e-2.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
device = "cuda" if torch.cuda.is_available() else "cpu"
for folder in map(pathlib.Path, sys.argv[1:]):
    golden = load_file(folder / "golden.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    model.train()
    more = {"output_router_logits": True} if "aux_loss" in golden else {}
    out = model(input_ids=golden["input_ids"].to(device), labels=golden["labels"].to(device), use_cache=False, **more)
    out.loss.backward()
    errors = {"loss": abs(out.loss.item() - golden["loss"].item()) / golden["loss"].item()}
    for name, parameter in model.named_parameters():
        want = golden.get(f"grad.{name}")
        if want is None or parameter.grad is None:
            continue
        got = parameter.grad.double().cpu()
        errors[f"grad.{name}"] = ((got - want.double()).norm() / want.double().norm().clamp_min(1e-12)).item()
    rounded = {name: float(f"{error:.3g}") for name, error in errors.items()}
    (folder / "bf16.json").write_text(json.dumps(rounded, indent=1) + "\n")
    gradients = {n: e for n, e in rounded.items() if n != "loss"}
    worst = max(gradients, key=gradients.get) if gradients else "none"
    print(folder.name, f"loss {rounded['loss']:.2e}", f"worst {worst} {gradients.get(worst, 0):.2e}", f"on {device}")
