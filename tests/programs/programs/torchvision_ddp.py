# SPDX-License-Identifier: Apache-2.0
"""torchvision's ResNet under DistributedDataParallel on two ranks (torchrun), with the buffers of its batch norms."""
# needs: torchvision
# launch: torchrun --standalone --nproc-per-node 2 {script}
# steps: 16

import torch
import torch.distributed as dist
import torchvision_operators  # noqa: F401
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torchvision.transforms import v2

import tierckpt  # <- tierckpt

# SyncBatchNorm has no implementation for the CPU: convert_sync_batchnorm would be called here on GPUs.


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    images = torch.rand(64, 3, 40, 40, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(2))
    augment = v2.Compose([v2.RandomCrop(32), v2.RandomHorizontalFlip(), v2.Normalize([0.5] * 3, [0.25] * 3)])
    block = torchvision.models.resnet.BasicBlock
    model = torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes=10, width_per_group=64)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
    sampler = torch.utils.data.DistributedSampler(labels, world, rank, seed=3)
    step = 0
    ckpt = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config="tierckpt.json")  # <- tierckpt
    step = ckpt.load_checkpoint() or 0  # <- tierckpt
    while step < 16:
        sampler.set_epoch(step // 8)
        rows = list(sampler)[step % 8 * 4:][:4]
        loss = torch.nn.functional.cross_entropy(model(augment(images[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
        if rank == 0:
            print(f"step {step} loss {loss.item()!r}", flush=True)
    ckpt.save_last(step)  # <- tierckpt
    ckpt.close()  # <- tierckpt
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(1)},
               f"final.{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
