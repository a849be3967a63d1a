#!/usr/bin/env python3
"""Times a training step of the reference implementation (torch, transformers 5.x) on the CPU, for comparison.

    reference_step.py CONFIG_DIR --tokens 512 --rows 4 --steps 10 --threads 2

Forward, backward, global-norm clip and AdamW in float32 on random ids; one document per row, so that the reference,
which cannot pack on a CPU, does no work that qwen35 does not. Prints the median of tokens per second as JSON.
"""
import argparse
import json
import statistics
import time

import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("config", help="folder with a config.json")
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
transformers.logging.set_verbosity_error()
config = transformers.AutoConfig.from_pretrained(args.config)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
rows = [torch.randint(0, config.vocab_size, (1, args.tokens)) for _ in range(args.rows)]

seconds = []
for step in range(args.steps + 1):
    start = time.perf_counter()
    for ids in rows:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss / args.rows
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - start)
median = statistics.median(seconds[1:])  # the first step warms up
print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "threads": args.threads,
                  "step_seconds": round(median, 5), "tokens_per_second": round(args.tokens * args.rows / median, 1)}))
