"""DeepSeek-AI, "DeepSeek LLM", arXiv 2401.02954, Eq. 1.

B = .2920·C^.3271 tokens and η = .3118·C^−.1250, fitted at 1e17 to 2e19 FLOPs; AdamW with betas .9
and .95, weight decay .1, a multi-step rate. C counts attention: C = M·D with
M = 72·layers·d² + 12·layers·d·seq_len FLOPs per token (Eq. 2); give it as `flops`. How C is shared
between model and tokens is left out, and said to matter; the two searches that it prints took 19
and 69 tokens for 6 of those FLOPs (Fig. 2), which is the range of D/N here.
Golden: the 7B model's rate of 4.2e-4 and batch of 2304 sequences of 4096 (Table 2, chosen by it).
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting


def law(setting: Setting) -> Hyperparameters:
    """Batch and rate by compute."""
    compute = setting.compute
    return Hyperparameters(0.2920 * compute**0.3271, 0.3118 * compute**-0.1250)


DEEPSEEK = Rule(
    "arXiv 2401.02954, Eq. 1", law, fitted={"compute": (1e17, 2e19), "tokens_per_param": (19, 69)}
)
