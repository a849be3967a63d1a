#!/usr/bin/env python3
"""Log-probabilities of a text as an engine would give them, token by token from its cache, in the reference
implementation (torch, transformers 5.x, float32): logprobs.json beside a golden model.

    reference_logprobs.py test/golden/real_heads

Decoding one token at a time runs GatedDeltaNet in its recurrent form and the convolution from its state; training runs the
chunked form. The file has "ids", 300 of them, "logprobs", of ids[1] and on, and "bf16_gap", the mean difference from them of
the whole text at once in bfloat16. The embedding, which is the head as well, is a 16th of the golden one: logits then are as
wide as those of trained models.
"""
import json
import pathlib
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
for folder in map(pathlib.Path, sys.argv[1:]):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1 / 16)
    generator = torch.Generator().manual_seed(31)
    ids = torch.randint(model.config.vocab_size, (300,), generator=generator).tolist()
    logprobs, cache = [], None
    with torch.no_grad():
        for token, following in zip(ids, ids[1:]):
            out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logprobs.append(torch.log_softmax(out.logits[0, -1].double(), -1)[following].item())
    with torch.no_grad():
        half = torch.log_softmax(model.to(torch.bfloat16)(input_ids=torch.tensor([ids])).logits[0].double(), -1)
    gaps = [abs(half[i, ids[i + 1]].item() - logprob) for i, logprob in enumerate(logprobs)]
    text = {"ids": ids, "logprobs": [float(f"{value:.7g}") for value in logprobs],
            "bf16_gap": float(f"{sum(gaps) / len(gaps):.3g}")}
    (folder / "logprobs.json").write_text(json.dumps(text) + "\n")
    print(folder, f"mean {sum(logprobs) / len(logprobs):.4f}, gap of bfloat16 {text['bf16_gap']}")
