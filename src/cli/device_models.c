#include "cli/device_models.h"

#include <string.h>

const struct device_model *device_models(bool is_emulated)
{
    static const struct device_model real[] = {
        {"124M", 12, 768, 12, 50304, 1024, 8, false},
        {"345M", 24, 1024, 16, 50304, 1024, 8, false},
        {"1.3B", 24, 2048, 16, 50304, 1024, 8, true},
        {0}};
    static const struct device_model toy[] = {{"toy", 2, 32, 2, 101, 16, 2, false}, {0}};
    return is_emulated ? toy : real;
}

// clang-format off
const struct device_anchor *device_anchors(void)
{
    static const struct device_anchor anchors[] = {
        {"PaddleFleetX", "V100", "345M", 16500,
         "log of its GPT tutorial, 1 GPU, float16, 30.9 GB"},
        {"PaddleFleetX", "V100", "1.3B", 5110,
         "log of its GPT tutorial, 8 GPUs, float16, recomputation; size inferred from the batch"},
        {"Megatron-LM 2020", "V100", "1.3B", 7310,
         "Megatron-LM, images/tables.tex at 5281919, 1.16B, 1 GPU, recomputation"},
        {"Megatron-LM 2020", "A100", "1.3B", 15230,
         "Megatron-LM, images/tables.tex at 5281919, 1.16B, 1 GPU, recomputation"},
        {"nanoGPT", "A100", "124M", 107000,
         "nanoGPT README, 8 A100-40, 4 days of training; no dropout"},
        {"llm.c", "A100", "124M", 218000,
         "llm.c scripts/run_gpt2_124M.sh at f1e2ace, 8 A100-80; no dropout"},
        {"llm.c", "A100", "345M", 79900,
         "llm.c scripts/run_gpt2_350M.sh at f1e2ace, 8 A100-80; no dropout"},
        {"llm.c", "H100", "124M", 475000,
         "modded-nanogpt's record 1 (llm.c, 45 minutes), 8 H100; no dropout"},
        {"llm.c", "H100", "1.3B", 46800,
         "llm.c scripts/run_gpt2_1558M.sh at f1e2ace, 1.56B, 8 H100; no dropout"},
        {"llm-foundry", "A100", "124M", 142800,
         "MosaicML llm-foundry, benchmarking/README, 125M, 2048 tokens, 8 A100-80"},
        {"llm-foundry", "A100", "345M", 58800,
         "MosaicML llm-foundry, benchmarking/README, 350M, 2048 tokens, 8 A100-80"},
        {"llm-foundry", "A100", "1.3B", 20500,
         "MosaicML llm-foundry, benchmarking/README, 2048 tokens, 8 A100-80"},
        {"llm-foundry", "H100", "1.3B", 45500,
         "MosaicML llm-foundry, benchmarking/README, 2048 tokens, 8 H100"},
        {"flash-attention", "A100", "124M", 164000,
         "flash-attention, training/README, 125M, 2048 tokens, 8 A100-80"},
        {"flash-attention", "A100", "345M", 62900,
         "flash-attention, training/README, 355M, 2048 tokens, 8 A100-80"},
        {"flash-attention", "A100", "1.3B", 21100,
         "flash-attention, training/README, 2048 tokens, 8 A100-80"},
        {0}};
    return anchors;
}
// clang-format on

/* NVIDIA's data sheets; the first name that is part of the GPU's. bfloat16 from A on. */
double device_peak(const char *gpu_name, enum dtype dtype)
{
    static const struct {
        const char *name;
        double flops;
        bool has_bf16;
    } peaks[] = {{"V100", 125e12, false},     {"T4", 65e12, false},
                 {"A100", 312e12, true},      {"A30", 165e12, true},
                 {"H100 PCIe", 756e12, true}, {"H100", 989e12, true}};
    for (size_t i = 0; i < ARRAY_LEN(peaks); i++)
        if (strstr(gpu_name, peaks[i].name))
            return dtype == DTYPE_F16 || (dtype == DTYPE_BF16 && peaks[i].has_bf16)
                       ? peaks[i].flops
                       : 0;
    return 0;
}
