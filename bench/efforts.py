"""How much is measured: all of it, one quick round, or toy sizes that only show that
everything runs. Sections read their sizes here and nowhere else."""

import dataclasses

GPT2 = "12L-768H-12A-V50304"
SMALL = "6L-384H-6A-V8192"


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """One shape of the section "steps"."""

    shape: str
    rounds: int
    steps: int  # measured in a round, after one that is not
    groups: tuple = ("float32", "bfloat16", "avx2")  # of section_step.GROUPS


@dataclasses.dataclass(frozen=True)
class Effort:
    steps: tuple  # of StepPlan
    kernels: tuple  # shapes, as below
    precision: tuple
    recompute: tuple
    switches: tuple
    rounds: int  # of every section but steps, products and scaling
    measured_steps: int  # in a round of those sections
    products: tuple  # (m, n, k) of the section "products"
    product_rounds: int
    attention_shape: str  # whose heads it has
    attention_seqs: tuple
    attention_rounds: int  # of one program
    layouts: tuple  # shapes of a step of the section "parallel", over all processes
    pipeline_shape: str  # a micro-batch
    scaling: dict  # what grows -> shapes
    ranks_shape: str  # of each rank
    adamw_elements: int
    generate_shape: str  # the model of it
    checkpoint_shape: str
    save_seconds: float  # steps of so long are left for a save in the background
    starts: int
    quality_steps: float  # of a recipe's own
    gradient_shape: str


FULL = Effort(
    steps=(
        StepPlan(f"{SMALL}-B8-S256", rounds=5, steps=4),
        StepPlan(f"{GPT2}-B4-S64", rounds=5, steps=4),
        StepPlan(f"{GPT2}-B1-S1024", rounds=3, steps=3),
        StepPlan(f"{GPT2}-B1-S2048", rounds=2, steps=1, groups=("float32",)),
        StepPlan(f"{GPT2}-B1-S4096", rounds=2, steps=1, groups=("float32",)),
    ),
    kernels=(f"{SMALL}-B8-S256", f"{GPT2}-B4-S64", f"{GPT2}-B1-S1024"),
    precision=(f"{SMALL}-B8-S256", f"{GPT2}-B4-S64", f"{GPT2}-B1-S1024"),
    recompute=(f"{SMALL}-B8-S256", f"{GPT2}-B1-S1024"),
    switches=(f"{SMALL}-B8-S256", f"{GPT2}-B4-S64"),
    rounds=3,
    measured_steps=3,
    products=(
        (2048, 384, 384),
        (2048, 1536, 384),
        (2048, 384, 1536),
        (1024, 768, 768),
        (1024, 3072, 768),
        (1024, 768, 3072),
        (512, 50304, 768),
    ),
    product_rounds=5,
    attention_shape=f"{GPT2}-B1-S1024",
    attention_seqs=(1024, 2048, 4096),
    attention_rounds=3,
    layouts=(f"{SMALL}-B16-S256", f"{GPT2}-B2-S512"),
    pipeline_shape=f"{GPT2}-B1-S256",
    scaling={
        "model": (
            "6L-384H-6A-V50304-B1-S256",
            f"{GPT2}-B1-S256",
            "24L-1024H-16A-V50304-B1-S256",
        ),
        "sequence": tuple(f"{GPT2}-B1-S{s}" for s in (256, 512, 1024, 2048, 4096)),
        "micro-batch": tuple(f"{GPT2}-B{b}-S256" for b in (1, 2, 4, 8)),
    },
    ranks_shape=f"{GPT2}-B1-S256",
    adamw_elements=124475904,
    generate_shape=f"{GPT2}-B1-S1024",
    checkpoint_shape=f"{GPT2}-B1-S64",
    save_seconds=10,
    starts=5,
    quality_steps=1.0,
    gradient_shape=f"{SMALL}-B4-S128",
)

QUICK = dataclasses.replace(
    FULL,
    steps=tuple(dataclasses.replace(p, rounds=1, steps=2) for p in FULL.steps[:3]),
    switches=FULL.switches[:1],
    rounds=1,
    measured_steps=2,
    product_rounds=2,
    layouts=FULL.layouts[:1],
    pipeline_shape=f"{GPT2}-B1-S128",
    scaling={
        "model": FULL.scaling["model"],
        "sequence": FULL.scaling["sequence"][:3],
        "micro-batch": FULL.scaling["micro-batch"][:3],
    },
    starts=3,
    quality_steps=0.1,
)

TOY = "2L-32H-4A-V257"
TINY = Effort(
    steps=(StepPlan(f"{TOY}-B2-S16", rounds=2, steps=1),),
    kernels=(f"{TOY}-B2-S16",),
    precision=(f"{TOY}-B2-S16",),
    recompute=(f"{TOY}-B2-S16",),
    switches=(f"{TOY}-B2-S16",),
    rounds=1,
    measured_steps=1,
    products=((16, 24, 8), (8, 16, 300)),
    product_rounds=1,
    attention_shape=f"{TOY}-B1-S16",
    attention_seqs=(32,),
    attention_rounds=1,
    layouts=(f"{TOY}-B2-S16",),
    pipeline_shape=f"{TOY}-B1-S16",
    scaling={"sequence": (f"{TOY}-B2-S16", f"{TOY}-B2-S32")},
    ranks_shape=f"{TOY}-B1-S16",
    adamw_elements=4096,
    generate_shape=f"{TOY}-B1-S16",
    checkpoint_shape=f"{TOY}-B1-S16",
    save_seconds=0.2,
    starts=1,
    quality_steps=0.01,
    gradient_shape=f"{TOY}-B2-S16",
)
