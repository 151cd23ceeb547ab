//! The program as a user meets it: answers, messages, exit codes.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn gemwright(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words.split_whitespace()).output().unwrap()
}

fn answer(words: &str) -> String {
    let done = gemwright(words);
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn json(words: &str) -> Value {
    serde_json::from_str(&answer(&format!("{words} --format json"))).unwrap()
}

/// The message of a command that must fail with this exit code.
fn failure(words: &str, code: i32) -> String {
    let done = gemwright(words);
    let message = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(code), "{words}: {message}");
    assert!(done.stdout.is_empty(), "{words} wrote to stdout");
    message
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Counts of the calls with this product.
fn counts(workload: &Value, m: u64, n: u64, k: u64) -> Vec<u64> {
    let product = serde_json::json!({"batch": 1, "m": m, "n": n, "k": k});
    let calls = workload["calls"].as_array().unwrap().iter();
    calls.filter(|c| c["product"] == product).map(|c| c["count"].as_u64().unwrap()).collect()
}

#[test]
fn llama_2_7b_generates() {
    let workload = json("model llama-2-7b --phase generate --batch 1 --seq 597 --steps 36");
    assert_eq!(counts(&workload, 1, 11008, 4096).iter().sum::<u64>(), 2304);
    assert_eq!(counts(&workload, 597, 11008, 4096).iter().sum::<u64>(), 64);
    assert_eq!(workload["parameters"], 6_738_415_616u64);
}

#[test]
fn gpt3_xl_trains_with_the_documents_three_products() {
    let workload = json("model gpt3-xl --phase train --batch 5 --seq 2048");
    let strides = |x: &Value| -> Vec<i64> { serde_json::from_value(x["stride"].clone()).unwrap() };
    for (op, (m, n, k), a, b) in [
        ("aten::addmm", (10240, 8192, 2048), [2048, 1], [1, 2048]),
        ("aten::mm", (10240, 2048, 8192), [8192, 1], [2048, 1]),
        ("aten::mm", (8192, 2048, 10240), [1, 8192], [2048, 1]),
    ] {
        let product = serde_json::json!({"batch": 1, "m": m, "n": n, "k": k});
        let found = workload["calls"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["op"] == op && c["product"] == product && strides(&c["a"]) == a && strides(&c["b"]) == b);
        assert_eq!(found.unwrap_or_else(|| panic!("no {op} {m}x{n}x{k}"))["count"], 24);
    }
}

#[test]
fn mi300x_has_its_ridge() {
    let roofs = json("roof 4096 4096 4096 --on mi300x,h200");
    let ridge = roofs["roofs"][0]["ridge"].as_f64().unwrap();
    assert_eq!(format!("{ridge:.1}"), "246.7");
    assert_eq!(roofs["roofs"].as_array().unwrap().len(), 2);
    assert!(answer("chips mi300x").contains("246.7 FLOP/B"));
}

#[test]
fn a_call_has_every_field_of_the_format() {
    let workload = json("model llama-2-7b --phase decode --past 597 --on h200");
    let call =
        &workload["calls"].as_array().unwrap().iter().find(|c| c["module"] == "model.layers.*.mlp.up_proj").unwrap();
    assert_eq!(call["flops"], 90_177_536);
    assert_eq!(call["bytes"], 90_207_744);
    assert_eq!(call["roof"]["bound"], "memory");
    assert!((call["roof"]["seconds"].as_f64().unwrap() - 1.879e-5).abs() < 1e-8);
    assert!(call["bias"].is_null() && call["measured"].is_null());
    let summary = &workload["summary"];
    assert_eq!(summary["weight_bytes"].as_f64().unwrap(), 2.0 * 6_738_415_616.0);
    assert_eq!(summary["cache_bytes"].as_f64().unwrap(), 2.0 * 32.0 * 598.0 * 4096.0 * 2.0);
    assert!(summary["roof"]["decode_leaves_memory_roof_at_batch"].as_u64().unwrap() > 100);
}

#[test]
fn decode_never_leaves_the_memory_roof_where_the_cache_grows_as_fast() {
    let workload = json("model llama-2-7b --phase decode --past 100000 --on h200");
    assert!(workload["summary"]["roof"]["with_the_cache_read"].is_null());
    assert!(answer("model llama-2-7b --phase decode --past 100000 --on h200").contains("never"));
}

#[test]
fn presets_have_the_published_number_of_parameters() {
    let listed = json("model --list");
    let presets = listed["presets"].as_array().unwrap();
    assert!(presets.len() >= 40);
    for preset in presets {
        let name = preset["preset"].as_str().unwrap();
        let sees = ["vit", "dinov2", "resnet", "convnext", "dit"].contains(&preset["type"].as_str().unwrap());
        let hears = preset["type"] == "whisper";
        let short = if sees || hears { "--steps 1" } else { "--seq 8 --steps 1" };
        let counted = json(&format!("model {name} {short}"))["parameters"].as_f64().unwrap();
        assert_eq!(counted, preset["parameters"].as_f64().unwrap(), "{name}");
    }
}

#[test]
fn every_format_of_every_command() {
    for command in ["model gpt2 --phase decode --on a100", "roof gpt2 --on a100", "chips", "chips h200", "model --list"]
    {
        for format in ["table", "json", "csv", "md"] {
            assert!(!answer(&format!("{command} --format {format}")).is_empty());
        }
    }
}

#[test]
fn recompute_repeats_the_layers_and_nothing_else() {
    let plain = json("model gpt2 --phase train");
    let again = json("model gpt2 --phase train --recompute");
    let sum = |workload: &Value, pass: &str| -> u64 {
        let calls = workload["calls"].as_array().unwrap().iter();
        calls.filter(|c| c["pass"] == pass).map(|c| c["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&plain, "recompute"), 0);
    // all but the head
    assert_eq!(sum(&again, "recompute"), sum(&plain, "forward") - 1);
    assert_eq!(sum(&again, "grad"), sum(&plain, "grad"));
}

#[test]
fn fewer_layers_have_fewer_parameters_and_calls() {
    let two = json("model llama-2-7b --phase prefill --layers 2");
    let per_layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096;
    assert_eq!(two["parameters"], 2 * 32000 * 4096 + 4096 + 2 * per_layer);
    assert_eq!(counts(&two, 512, 11008, 4096).iter().sum::<u64>(), 4);
}

#[test]
fn a_static_cache_is_attended_whole_and_masked() {
    let workload = json("model llama-3.1-8b --phase decode --past 100 --cache static:4096");
    let attention = workload["calls"].as_array().unwrap().iter().find(|c| c["q"].is_object()).unwrap();
    assert_eq!(attention["k"]["size"], serde_json::json!([1, 32, 4096, 128]));
    assert!(attention["mask"].is_object() && attention["enable_gqa"] == false);
}

#[test]
fn f32_attention_with_shared_heads_is_decomposed() {
    let workload = json("model llama-3.1-8b --phase prefill --dtype f32");
    let attention = workload["calls"].as_array().unwrap().iter().find(|c| c["q"].is_object()).unwrap();
    assert_eq!((&attention["kernel"], &attention["flops"]), (&"math".into(), &0.into()));
    let inside = workload["calls"].as_array().unwrap().iter().filter(|c| c["inside"].is_string()).count();
    assert_eq!(inside, 2);
}

#[test]
fn messages_name_the_cause_the_place_and_the_cure() {
    let config = file("wrong.json", "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": \"wide\"\n}");
    let message = failure(&format!("model {}", config.display()), 2);
    assert!(message.contains("wrong.json:3:3") && message.contains("hidden_size"), "{message}");

    let config = file("odd.json", "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 31}");
    assert!(failure(&format!("model {}", config.display()), 2).contains("multiple of num_attention_heads"));

    let config = file("kv.json", "{\"model_type\": \"llama\", \"num_key_value_heads\": 5}");
    assert!(failure(&format!("model {}", config.display()), 2).contains("num_key_value_heads"));

    let config = file("toy.json", "{\"model_type\": \"bloom\", \"n_layer\": 2, \"n_head\": 2}");
    assert!(failure(&format!("model {}", config.display()), 2).contains("`hidden_size` is missing"));

    let config = file("null.json", "{\"model_type\": \"mistral\", \"num_key_value_heads\": null}");
    assert!(failure(&format!("model {}", config.display()), 2).contains("null"));

    let config = file("lama.json", "{\"model_type\": \"lama\"}");
    assert!(failure(&format!("model {}", config.display()), 2).contains("nearest: `llama`"));

    assert!(failure("model lama-2-7b", 2).contains("nearest: `llama-2-7b`"));
    assert!(failure("model ./nowhere/config.json", 2).contains("no such file"));
    assert!(failure("model gptj-6b --attention sdpa", 2).contains("use eager"));
    assert!(failure("model gpt2 --layers 99", 2).contains("12 layers"));
    assert!(failure("model gpt2 --batch 0", 2).contains("--batch"));
    assert!(failure("model gpt2 --recompute", 2).contains("--phase train"));
    assert!(failure("model llama-2-7b --phase decode --on h2000", 2).contains("nearest"));
    assert!(failure("roof 1 2 --on h200", 2).contains("M N K"));
    assert!(failure("roof 1 0 3 --on h200", 2).contains("N is `0`"));
    assert!(failure("roof 8 8 8 --on mi308x", 2).contains("bf16 peak"));
    assert!(failure("frobnicate", 2).contains("frobnicate"));
}

#[test]
fn an_absent_field_takes_the_class_default_and_is_named() {
    let config = file("mistral.json", "{\"model_type\": \"mistral\", \"num_hidden_layers\": 2}");
    let workload = json(&format!("model {} --phase decode", config.display()));
    let warning = workload["warnings"][0].as_str().unwrap();
    assert!(warning.contains("num_key_value_heads = 8"), "{warning}");
    let config = file("qwen2.json", "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2}");
    let workload = json(&format!("model {} --phase decode", config.display()));
    assert!(workload["warnings"][0].as_str().unwrap().contains("num_key_value_heads = 32"));
}

#[test]
fn a_chip_of_ones_own_and_this_machine() {
    let chip = file(
        "mine.toml",
        "[[chip]]\nid = \"mine\"\nname = \"Mine\"\npeaks = { bf16 = 100 }\nmemory = { gbs = 1000 }\n",
    );
    let roofs = json(&format!("roof 4096 4096 4096 --on {}", chip.display()));
    assert_eq!(roofs["roofs"][0]["ridge"], 100.0);
    let broken = file("broken.toml", "[[chip]]\nid = \"mine\"\n");
    assert!(failure(&format!("roof 8 8 8 --on {}", broken.display()), 2).contains("name"));
    if cfg!(target_os = "linux") {
        assert_eq!(json("chips host")["id"], "host");
        assert!(failure("roof 8 8 8 --on host", 2).contains("host"));
    }
}

#[test]
fn help_has_examples_and_the_rest_is_generated() {
    for command in ["", "model", "roof", "chips"] {
        let help = answer(&format!("{command} --help"));
        assert!(help.contains("Examples:"), "{command}");
    }
    assert!(answer("completions bash").contains("gemwright"));
    assert!(answer("man model").contains(".TH"));
}

#[test]
fn the_answer_goes_to_a_file_and_is_the_same_every_time() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("out.json");
    let words = "model qwen3-8b --phase generate --steps 8";
    answer(&format!("{words} --format json -o {}", path.display()));
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, answer(&format!("{words} --format json")));
}

#[test]
fn the_json_is_what_the_schema_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/workload.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for words in [
        "model llama-3.1-8b --phase train --on h200",
        "model falcon-7b --phase prefill",
        "model bloom-560m --phase decode",
        "model gemma-3-1b --phase generate --steps 2 --dtype f32",
        "model convnext-tiny-224 --phase train",
        "model mamba-130m --phase train --seq 8",
        "model mixtral-8x7b --phase decode --weight-dtype int4 --tp 2",
        "model whisper-tiny --weight-dtype fp8 --phase prefill",
    ] {
        let workload = json(words);
        let errors: Vec<String> = schema.iter_errors(&workload).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{words}: {errors:?}");
    }
    assert!(!schema.is_valid(&serde_json::json!({"format": 2})));
}

#[test]
fn the_documents_three_products_have_their_flags() {
    let workload = json("model gpt3-xl --phase train --batch 5 --seq 2048");
    let calls = workload["calls"].as_array().unwrap();
    let flags = |pass: &str, module: &str, m: u64| {
        let call = calls.iter().find(|c| c["pass"] == pass && c["module"] == module && c["product"]["m"] == m).unwrap();
        (call["blas"]["transa"].as_str().unwrap().to_string(), call["blas"]["transb"].as_str().unwrap().to_string())
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(flags("forward", "blocks.*.up", 10240), pair("T", "N"));
    assert_eq!(flags("grad", "blocks.*.up", 10240), pair("N", "N"));
    assert_eq!(flags("grad", "blocks.*.up", 8192), pair("N", "T"));
    assert_eq!(calls.iter().find(|c| c["module"] == "blocks.*.up").unwrap()["blas"]["epilogue"], "EPILOGUE_BIAS");
}

#[test]
fn explain_gives_the_steps_of_an_operation() {
    let answer = json("explain --op aten::addmm --a 128x64:64,1 --b 64x96:1,64 --bias 96:1 --dtype bf16");
    let kinds: Vec<&str> = answer["steps"].as_array().unwrap().iter().map(|s| s["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["aten", "blas"]);
    assert_eq!(answer["steps"][1]["routine"], "cublasLtMatmul");
    let strided = json("explain --op linear --a 4x24x224:10752,448,2 --b 160x224 --bias 160");
    let kinds: Vec<&str> = strided["steps"].as_array().unwrap().iter().map(|s| s["kind"].as_str().unwrap()).collect();
    assert!(
        kinds.contains(&"copy") && strided["steps"].as_array().unwrap().iter().any(|s| s["op"] == "aten::add_"),
        "{kinds:?}"
    );
    let frozen = json("explain --op linear --a 4x24x224:224,896,1 --b 160x224 --frozen");
    assert_eq!(frozen["steps"][0]["op"], "aten::bmm");
    let rocm = json("explain --op mm --a 128x64 --b 64x96 --library rocm");
    assert_eq!(rocm["steps"][1]["routine"], "hipblasLtMatmul");
}

#[test]
fn explain_takes_an_expression_and_a_layer() {
    let page =
        Command::new(env!("CARGO_BIN_EXE_gemwright")).args(["explain", "597x4096 @ 4096x11008^T"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("cublasGemmEx(T, N, m = 11008, n = 597, k = 4096"), "{page}");
    let other =
        Command::new(env!("CARGO_BIN_EXE_gemwright")).args(["explain", "597x4096 @ 11008x4096^T"]).output().unwrap();
    assert!(String::from_utf8(other.stdout).unwrap().contains("m = 11008, n = 597"));
    assert!(answer("explain llama-3.1-8b mlp.up_proj --phase decode").contains("gate and up in one product"));
    assert!(answer("explain gpt2 lm_head --phase prefill").contains("50257 is no multiple of 8"));
    assert!(failure("explain llama-3.1-8b mlp.nonesuch", 2).contains("mlp.down_proj"));
    assert!(failure("explain --op mm --a 4x5 --b 6x7", 2).contains("5 is not 6"));
    assert!(failure("explain --op mm --a 4xx5 --b 6x7", 2).contains("128x64:64,1"));
    assert!(failure("explain --op mm --a 4x5", 2).contains("--b"));
}

#[test]
fn warp_tiles_of_the_documents() {
    let rows = json("roof --tiles --on rtx3090");
    let column = |rows: &Value, name: &str| -> Vec<f64> {
        rows["tiles"].as_array().unwrap().iter().map(|r| r[name].as_f64().unwrap()).collect()
    };
    let bytes = column(&rows, "bytes/clock");
    assert_eq!(
        bytes.iter().map(|b| b.round()).collect::<Vec<_>>(),
        [128.0, 48.0, 52.0, 72.0, 68.0, 64.0, 48.0, 64.0, 56.0]
    );
    assert_eq!(column(&json("roof --tiles --on rtx3090 --flops-per-clock 6780"), "bytes/clock")[0], 1695.0);
    assert!(failure("roof --tiles --on tpu-v4", 2).contains("--flops-per-clock"));
}

#[test]
fn utilisation_counts_recomputation_for_the_hardware_only() {
    let notes = |words: &str| json(words)["notes"][0].as_str().unwrap().to_string();
    let plain = notes("roof gpt3-xl --phase train --batch 5 --seq 2048 --on h200 --step-time 310ms");
    let again = notes("roof gpt3-xl --phase train --batch 5 --seq 2048 --recompute --on h200 --step-time 310ms");
    let value = |text: &str, name: &str| {
        text.split(name).nth(1).unwrap().split('%').next().unwrap().trim().parse::<f64>().unwrap()
    };
    assert_eq!(value(&plain, "MFU "), value(&again, "MFU "));
    assert!(value(&again, "HFU ") > value(&plain, "HFU ") * 1.2);
    assert!(failure("roof gpt2 --on h200 --step-time soon", 2).contains("310ms"));
}

#[test]
fn shapes_and_pictures() {
    let shapes = file("shapes.csv", "M,N,K,count,dtype\n16,4096,4096,3,f16\n8,8,8,,\n");
    let rows = json(&format!("roof {} --on a100", shapes.display()));
    assert_eq!(rows["roofs"].as_array().unwrap().len(), 2);
    assert_eq!((&rows["roofs"][0]["count"], &rows["roofs"][0]["dtype"]), (&3.into(), &"f16".into()));
    for (name, begin) in [("plot.svg", &b"<svg"[..]), ("plot.png", &b"\x89PNG"[..])] {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        answer(&format!("roof gpt2 --phase train --on h200,mi300x --plot {}", path.display()));
        assert!(std::fs::read(&path).unwrap().starts_with(begin));
    }
    assert!(failure("roof gpt2 --on h200 --plot x.gif", 2).contains(".svg or .png"));
    let broken = file("broken.csv", "M,N\n1,2\n");
    assert!(failure(&format!("roof {} --on a100", broken.display()), 2).contains("M, N and K"));
    let broken = file("broken2.csv", "M,N,K\n1,2,x\n");
    assert!(failure(&format!("roof {} --on a100", broken.display()), 2).contains("line 2"));
}

#[test]
fn an_encoder_runs_forward_over_its_own_length() {
    let workload = json("model bert-base-uncased");
    assert_eq!((&workload["workload"]["phase"], &workload["workload"]["seq"]), (&"forward".into(), &512.into()));
    let attention = workload["calls"].as_array().unwrap().iter().find(|c| c["q"].is_object()).unwrap();
    assert!(attention["is_causal"] == false && attention["mask"].is_null());
    assert!(failure("model bert-base-uncased --phase decode", 2).contains("encoder"));
}

#[test]
fn a_vision_model_cuts_its_image_by_a_convolution() {
    let workload = json("model dinov2-base --image 280 --batch 2");
    assert_eq!((&workload["workload"]["phase"], &workload["workload"]["image"]), (&"forward".into(), &280.into()));
    let cut = &workload["calls"][0];
    assert_eq!((&cut["op"], &cut["out"]["size"]), (&"aten::convolution".into(), &[2, 768, 20, 20].as_slice().into()));
    // 2 images of 20 x 20 patches, each patch 14 x 14 x 3 wide.
    assert_eq!(cut["flops"].as_f64(), Some(2.0 * 800.0 * 768.0 * 588.0));
    assert!(failure("model vit-base-patch16-224 --image 280", 2).contains("images of 224 only"));
    assert!(failure("model dinov2-base --image 13", 2).contains("one patch"));
    assert!(failure("model dinov2-base --seq 12", 2).contains("--image"));
    assert!(failure("model gpt2 --image 224", 2).contains("has no eyes"));
}

#[test]
fn an_encoder_decoder_reads_once_and_decodes_against_both() {
    let whole = json("model bart-base --phase generate --seq 20 --steps 3");
    assert_eq!((&whole["workload"]["encoder_seq"], &whole["workload"]["decoder_seq"]), (&20.into(), &1.into()));
    let count = |workload: &Value, module: &str| -> u64 {
        let calls = workload["calls"].as_array().unwrap().iter().filter(|c| c["module"] == module);
        calls.map(|c| c["count"].as_u64().unwrap()).sum()
    };
    // Six layers; keys and values of the encoder are projected once, queries in each of the four passes.
    assert_eq!(count(&whole, "model.encoder.layers.*.fc1"), 6);
    assert_eq!(count(&whole, "model.decoder.layers.*.encoder_attn.k_proj"), 6);
    assert_eq!(count(&whole, "model.decoder.layers.*.encoder_attn.q_proj"), 24);
    let step = json("model bart-base --phase decode --past 7 --encoder-seq 20 --batch 3");
    assert_eq!(count(&step, "model.decoder.layers.*.encoder_attn.k_proj"), 0);
    assert_eq!(count(&step, "model.encoder.layers.*.fc1"), 0);
    assert!(failure("model whisper-tiny --seq 100", 2).contains("gives 1500 tokens"));
    assert!(failure("model gpt2 --encoder-seq 8", 2).contains("encoder-decoders"));
}

#[test]
fn a_state_space_keeps_a_state_of_one_size() {
    let cache = |past: i64| {
        let text = answer(&format!("model mamba-130m --phase decode --past {past} --format table"));
        text.lines().find(|l| l.starts_with("state")).unwrap().to_string()
    };
    // 24 layers, each 1536 channels of 4 taps and 16 numbers, two bytes each.
    assert!(cache(8).contains("1.47 MB"), "{}", cache(8));
    assert_eq!(cache(8), cache(4096));
    assert!(failure("model mamba-130m --attention eager", 2).contains("has no attention"));
}

#[test]
fn a_network_of_convolutions_says_which_are_hardly_products() {
    let text = answer("model convnext-tiny-224 --on h200 --format table");
    assert!(text.contains("7x7 kernel, depthwise") && text.contains("hardly products") && text.contains("images/s"));
    let network = json("model resnet-18 --image 64 --batch 2");
    let first = &network["calls"][0];
    assert_eq!((&first["out"]["size"], &first["depthwise"]), (&[2, 64, 32, 32].as_slice().into(), &false.into()));
    assert!(failure("model convnext-tiny-224 --image 8", 2).contains("nothing is left"));
    assert!(failure("model resnet-18 --layers 2", 2).contains("stages"));
}

#[test]
fn experts_are_grouped_or_gathered_and_counted_as_touched() {
    let step = json("model mixtral-8x7b --phase decode --batch 1");
    let experts = |workload: &Value| -> Value {
        workload["calls"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["module"] == "model.layers.*.mlp.experts")
            .unwrap()
            .clone()
    };
    let call = experts(&step);
    // one token of two experts out of eight: two experts are read
    assert_eq!(
        (&call["op"], &call["groups"], &call["groups_touched"]),
        (&"aten::_grouped_mm".into(), &8.into(), &2.0.into())
    );
    let weights = 2.0 * 2.0 * 4096.0 * 28672.0;
    assert_eq!(call["bytes"].as_f64().unwrap(), weights + 2.0 * 2.0 * (4096.0 + 28672.0));
    assert!(call["blas"].is_null());
    let many = experts(&json("model mixtral-8x7b --phase prefill --seq 4096"));
    assert!((many["groups_touched"].as_f64().unwrap() - 8.0).abs() < 1e-9);
    assert_eq!(experts(&json("model mixtral-8x7b --phase decode --experts batched_mm"))["op"], "aten::bmm");
}

#[test]
fn the_load_of_experts_decides_how_many_are_read() {
    let file = |name: &str, text: &str| {
        let path = std::env::temp_dir().join(format!("gemwright-load-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let touched = |load: &str| {
        let workload = json(&format!("model mixtral-8x7b --phase decode --batch 4 --expert-load {load}"));
        let grouped = workload["calls"].as_array().unwrap().iter().find(|c| c["groups_touched"].is_number());
        grouped.unwrap()["groups_touched"].as_f64().unwrap()
    };
    let even = 8.0 * (1.0 - 0.75_f64.powi(4));
    assert!((touched("uniform") - even).abs() < 1e-12);
    assert!((touched(&file("even", "[5, 5, 5, 5, 5, 5, 5, 5]")) - even).abs() < 1e-12);
    // Two experts take every token's two choices.
    assert_eq!(touched(&file("two", "[0, 9, 0, 0, 9, 0, 0, 0]")), 2.0);
    let refused = |model: &str, load: &str| failure(&format!("model {model} --expert-load {load}"), 2);
    assert!(refused("mixtral-8x7b", &file("one", "[9, 1, 0, 0, 0, 0, 0, 0]")).contains("expert 0"));
    assert!(refused("mixtral-8x7b", &file("none", "[0, 0, 0, 0, 0, 0, 0, 0]")).contains("expert 0"));
    assert!(refused("mixtral-8x7b", &file("few", "[1, 2]")).contains("8 experts"));
    assert!(refused("mixtral-8x7b", &file("less", "[-1, 2, 2, 2, 2, 2, 2, 2]")).contains("zero or more"));
    assert!(refused("mixtral-8x7b", &file("word", "even")).contains("list like"));
    assert!(refused("gpt2", &file("even", "[1]")).contains("has none"));
}

#[test]
fn an_absorbed_latent_is_shared_by_all_heads() {
    let step = json("model deepseek-v3 --phase decode --batch 4 --past 999 --attention mla-absorbed");
    let calls: Vec<&Value> = step["calls"].as_array().unwrap().iter().collect();
    let of =
        |module: &str| calls.iter().filter(|c| c["module"].as_str().unwrap().ends_with(module)).collect::<Vec<_>>();
    // The weight of 512 x 128 · (128 + 128) is split by head: into the latent before attention, out of it after.
    let absorbed: Vec<_> = of("kv_b_proj").iter().map(|c| [&c["op"], &c["a"]["size"], &c["b"]["size"]]).collect();
    let sizes = |a: [i64; 3], b: [i64; 3]| [Value::from("aten::bmm"), a.as_slice().into(), b.as_slice().into()];
    let [into, out_of] = [sizes([128, 4, 128], [128, 128, 512]), sizes([128, 4, 512], [128, 512, 128])];
    assert_eq!(absorbed, [into.each_ref(), out_of.each_ref()]);
    let attention = &of("self_attn")[0];
    assert_eq!((&attention["backend"], &attention["count"]), (&"latent".into(), &61.into()));
    // Each cached latent is read once, for keys and values: 4 x 1000 of 576, queries 4 x 128 of 576, results of 512.
    assert_eq!(attention["bytes"].as_f64(), Some(2.0 * (4000.0 * 576.0 + 512.0 * (576.0 + 512.0))));
    let scale = 1.0 / 192.0_f64.sqrt();
    assert!(attention["scale"].as_f64().unwrap() >= scale);
    // A prompt is expanded, as without it.
    let prompt =
        |way: &str| json(&format!("model deepseek-v3 --phase prefill --seq 64 --attention {way}"))["calls"].clone();
    assert_eq!(prompt("mla-absorbed"), prompt("sdpa"));
    assert!(failure("model gpt2 --attention mla-absorbed", 2).contains("no latent"));
    assert!(failure("model deepseek-v3 --phase train --attention mla-absorbed", 2).contains("decode"));
}

#[test]
fn a_latent_cache_is_smaller_than_keys_and_values() {
    let step = json("model deepseek-v3 --phase decode --past 999");
    assert_eq!(step["summary"]["cache_bytes"].as_f64().unwrap(), 61.0 * 1000.0 * (512.0 + 64.0) * 2.0);
}
