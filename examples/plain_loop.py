"""A training loop of one's own in plain PyTorch; what comes out is a model of scaseg.

python plain_loop.py [FOLDER]
"""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import scaseg

torch.manual_seed(0)
folder = sys.argv[1] if len(sys.argv) > 1 else "my_model"

# your own images and labels: here squares of three colors, 255 where nothing is labelled
labels = torch.randint(0, 3, (64, 4, 4)).repeat_interleave(8, 1).repeat_interleave(8, 2)
colors = torch.tensor([[200, 60, 60], [60, 200, 60], [60, 60, 200]])
images = (colors[labels].permute(0, 3, 1, 2) + torch.randint(-40, 40, (64, 3, 32, 32))).byte()
labels[:, 0] = 255

model = scaseg.create_model("tiny", "sca", "pointwise", classes=["red", "green", "blue"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True)
model.train()
for epoch in range(4):
    total = 0.0
    for pixels, truth in loader:
        scores = model(model.normalize(pixels))  # (B, 3, H, W)
        loss = F.cross_entropy(scores, truth, ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}")

model.eval().save_pretrained(folder)  # for `scaseg predict --model`, explain, export, ...
found = scaseg.load_model(folder).predict(images[0])
right = (torch.from_numpy(found.labels).long() == labels[0])[labels[0] != 255].float().mean()
print(f"{100 * right:.0f} % of the pixels of the first image are right; {found}")
