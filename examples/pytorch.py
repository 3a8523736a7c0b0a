"""A batch schedule with PyTorch; bss needs no JAX here."""

import torch  # type: ignore[import-not-found]

import bss
from examples.data import PLAN, Rows


def train(plan: bss.Plan, micro_batch: int = 8) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    losses, rows = [], Rows(plan)
    for step in plan:
        for group in optimizer.param_groups:
            group["lr"] = step.lr
        loss_of_step = 0.0
        batch = {name: torch.from_numpy(x) for name, x in rows.take(step.batch).items()}
        kept = batch["mask"].sum()  # of the whole batch: micro-batches have unequal numbers
        for first in range(0, step.batch, micro_batch):
            part = {name: x[first : first + micro_batch] for name, x in batch.items()}
            tokens, mask = part["tokens"].long(), part["mask"]
            logits = model(tokens[:, :-1])
            targets = tokens[:, 1:]
            each = torch.nn.functional.cross_entropy(logits[mask], targets[mask], reduction="sum")
            (each / kept).backward()
            loss_of_step += float(each.detach() / kept)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss_of_step)
    return losses


if __name__ == "__main__":
    print(train(PLAN))
