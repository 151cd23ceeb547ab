#!/usr/bin/env python3
"""Record the matrix products that a transformers or diffusers model runs.

A model is built from its configuration on the `meta` device (no weights, no memory), run once per
phase, and what recorder.py sees is written down.

  pip install torch==2.11.0 transformers==5.17.0 diffusers
  python scripts/record.py --config config.json --name my-model [--attention sdpa,eager] [--device cpu]
  python scripts/golden.py my-model.json --out tests/golden

config.json needs `architectures`, whose first entry names the transformers class, or `_class_name`,
which names the diffusers class.  `--kind` says what the model reads: decoder, encoder, seq2seq,
vision, clip or dit.  `--device cpu` runs real tensors, for small models; `--runs runs.json` gives a
list of runs of one's own, such as [{"phase": "decode", "batch": 4, "seq": 1, "past": 300}].
"""
import argparse
import copy
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from recorder import recording


class Gpt3Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["d_model"]
        self.heads = c["heads"]
        self.ln_1 = torch.nn.LayerNorm(d)
        self.qkv = torch.nn.Linear(d, 3 * d)
        self.proj = torch.nn.Linear(d, d)
        self.ln_2 = torch.nn.LayerNorm(d)
        self.up = torch.nn.Linear(d, c["d_ff"])
        self.down = torch.nn.Linear(c["d_ff"], d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(d, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class Gpt3(torch.nn.Module):
    """A plain GPT-3: nn.Linear with bias everywhere, fused QKV, output head tied to the embedding."""

    def __init__(self, c):
        super().__init__()
        self.wte = torch.nn.Embedding(c["vocab"], c["d_model"])
        self.wpe = torch.nn.Embedding(c["positions"], c["d_model"])
        self.blocks = torch.nn.ModuleList(Gpt3Block(c) for _ in range(c["layers"]))
        self.ln_f = torch.nn.LayerNorm(c["d_model"])
        self.head = torch.nn.Linear(c["d_model"], c["vocab"], bias=False)
        self.head.weight = self.wte.weight

    def forward(self, input_ids, labels=None):
        pos = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(pos)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())}


def make_config(given):
    given = copy.deepcopy(given)
    if "_class_name" in given or given["model_type"] == "plain_gpt3":
        return given
    given.pop("transformers_version", None)
    return transformers.AutoConfig.for_model(**given)


def build(given, config, attention, device):
    torch.manual_seed(0)
    with torch.device(device):
        if "_class_name" in given:
            import diffusers
            return getattr(diffusers, given["_class_name"]).from_config(config).to(torch.bfloat16)
        if isinstance(config, dict):
            return Gpt3(config).to(torch.bfloat16)
        cls = getattr(transformers, given["architectures"][0])
        how = {} if attention == "none" else {"attn_implementation": attention}
        model = cls._from_config(copy.deepcopy(config), dtype=torch.bfloat16, **how)
    if device != "meta":
        model.tie_weights()
    return model


def token_ids(b, s, device):
    if device == "meta":
        return torch.empty(b, s, dtype=torch.long, device="meta")
    return torch.randint(5, 1000, (b, s), device=device)


def real(shape, device):
    if device == "meta":
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")
    return torch.randn(shape, device=device).to(torch.bfloat16)


def inputs_for(given, kind, config, run, device):
    """The arguments of model(...) for one run."""
    batch, train = run["batch"], run["phase"] == "train"
    args = {}
    if kind == "dit":
        args["hidden_states"] = real((batch, config["in_channels"], run["image"], run["image"]), device)
        args["timestep"] = args["class_labels"] = torch.zeros(batch, dtype=torch.long, device=device)
    elif kind in ("vision", "clip"):
        args["pixel_values"] = real((batch, 3, run["image"], run["image"]), device)
        if kind == "clip":
            args["input_ids"] = token_ids(batch, run["seq"], device)
            args.update({"return_loss": True} if train else {})
        elif train and "ForImageClassification" in given["architectures"][0]:
            args["labels"] = torch.zeros(batch, dtype=torch.long, device=device)
    elif kind == "seq2seq":
        if given["model_type"] == "whisper":
            args["input_features"] = real((batch, config.num_mel_bins, 2 * config.max_source_positions), device)
        else:
            args["input_ids"] = token_ids(batch, run["seq"], device)
        args["labels" if train else "decoder_input_ids"] = token_ids(batch, run["decoder_seq"], device)
    else:
        args["input_ids"] = token_ids(batch, run["seq"], device)
        if train:
            args["labels"] = args["input_ids"]
    if "logits_to_keep" in run:
        args["logits_to_keep"] = run["logits_to_keep"]
    if train and kind in ("decoder", "seq2seq") and given["model_type"] != "plain_gpt3":
        args["use_cache"] = False
    return args


def loss_of(out):
    """The model's own loss; of a model without one, the mean square of what it gives."""
    if "loss" in out and out["loss"] is not None:
        return out["loss"]
    return out["sample" if "sample" in out else "last_hidden_state"].float().pow(2).mean()


def step(model, kind, past, run, device):
    """One decoding step: a token per sequence against a cache."""
    ids = token_ids(run["batch"], 1, device)
    if kind == "seq2seq":
        read = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=past["encoder_last_hidden_state"])
        return model(decoder_input_ids=ids, encoder_outputs=read, past_key_values=past["past_key_values"],
                     use_cache=True)
    name = "past_key_values" if "past_key_values" in past else "cache_params"
    return model(input_ids=ids, use_cache=True, **{name: past[name]})


def static_cache(model, run):
    """A cache of so many places, where the run names one as static:N."""
    if not run.get("cache", "").startswith("static:"):
        return {}
    places = int(run["cache"].split(":")[1])
    return {"past_key_values": transformers.StaticCache(config=model.config, max_cache_len=places)}


def execute(model, given, kind, config, run, device):
    experts = lambda name: run.get("experts") and model.set_experts_implementation(name)
    experts("grouped_mm")
    phase = run["phase"]
    inputs = lambda **changes: inputs_for(given, kind, config, dict(run, **changes), device)
    if phase == "train":
        model.train()
        for part in model.modules():
            if hasattr(part, "dropout_prob"):       # diffusers drops class labels by it
                part.dropout_prob = 0.0
        args = inputs()
        with recording(model) as rec:
            loss_of(model(**args)).backward()
        model.zero_grad(set_to_none=True)
        return rec
    model.eval()
    with torch.no_grad():
        cache = static_cache(model, run)
        if phase in ("prefill", "forward"):
            args = inputs()
            if kind == "decoder":
                args["use_cache"] = phase == "prefill"
            with recording(model) as rec:
                model(**args, **cache)
        elif phase == "decode":
            past = model(**inputs(phase="prefill", seq=run.get("encoder_seq", run["past"]), decoder_seq=run["past"]),
                         **cache, use_cache=True)
            experts(run.get("experts"))
            with recording(model) as rec:
                step(model, kind, past, run, device)
        elif phase == "generate":
            args = inputs(phase="prefill", logits_to_keep=1)
            with recording(model) as rec:
                past = model(**args, use_cache=True)
                for _ in range(run["steps"]):
                    past = step(model, kind, past, run, device)
        else:
            raise SystemExit("unknown phase " + phase)
    return rec


def usual_runs(given, kind):
    """What is run where no list is given."""
    if kind == "encoder":
        return [{"phase": "forward", "batch": 1, "seq": 128}, {"phase": "forward", "batch": 2, "seq": 100},
                {"phase": "train", "batch": 2, "seq": 64}]
    if kind in ("vision", "dit"):
        image = given.get("sample_size", 224)
        return [{"phase": p, "batch": b, "image": image} for p, b in (("forward", 1), ("forward", 8), ("train", 2))]
    if kind == "clip":
        return [{"phase": "forward", "batch": 1, "seq": 77, "image": 224},
                {"phase": "train", "batch": 4, "seq": 77, "image": 224}]
    if kind == "seq2seq":
        read = {} if given["model_type"] == "whisper" else {"seq": 128}
        kept = {"encoder_seq": 128} if read else {}
        return [dict(read, phase="prefill", batch=1, decoder_seq=32, past=0),
                dict(read, phase="prefill", batch=2, decoder_seq=1, past=0),
                dict(kept, phase="decode", batch=4, seq=1, past=300),
                dict(read, phase="train", batch=2, decoder_seq=48, past=0, use_cache=False)]
    return [{"phase": "prefill", "batch": 1, "seq": 128, "past": 0},
            {"phase": "prefill", "batch": 2, "seq": 100, "past": 0},
            {"phase": "decode", "batch": 4, "seq": 1, "past": 300},
            {"phase": "train", "batch": 2, "seq": 64, "past": 0, "use_cache": False}]


def record(name, given, kind, attentions, runs, device):
    config = make_config(given)
    done, params = [], None
    for attention in attentions:
        model = build(given, config, attention, device)
        params = params or sum(p.numel() for p in model.parameters())
        for run in runs:
            run = dict(run, attention=attention)
            rec = execute(model, given, kind, config, run, device)
            done.append(dict(run, calls=rec.result()))
            if rec.suspects:
                print("  not recorded:", run, dict(rec.suspects), file=sys.stderr)
    saved = config
    if not isinstance(config, dict):
        cfg = copy.deepcopy(config)
        cfg.architectures, cfg.dtype = given["architectures"], "bfloat16"
        saved = json.loads(cfg.to_json_string(use_diff=True))
    source = {"model": name, "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
              "device": device, "dtype": "bfloat16"}
    return {"source": source, "config": saved, "config_given": given, "parameters": params, "runs": done}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--config", required=True)
    ap.add_argument("--name", required=True)
    ap.add_argument("--kind", default="decoder", choices=["decoder", "encoder", "seq2seq", "vision", "clip", "dit"])
    ap.add_argument("--attention", default="sdpa", help="sdpa, eager or both, separated by a comma; none")
    ap.add_argument("--runs", help="a JSON file with a list of runs")
    ap.add_argument("--device", default="meta")
    ap.add_argument("--out", default=".", help="folder for the recording")
    options = ap.parse_args()
    with open(options.config) as f:
        given = json.load(f)
    runs = json.load(open(options.runs)) if options.runs else usual_runs(given, options.kind)
    t = time.time()
    doc = record(options.name, given, options.kind, options.attention.split(","), runs, options.device)
    with open(os.path.join(options.out, options.name + ".json"), "w") as f:
        json.dump(doc, f)
    print(f"{options.name}: {doc['parameters']:,} parameters, {len(doc['runs'])} runs, {time.time() - t:.1f} s")


if __name__ == "__main__":
    main()
