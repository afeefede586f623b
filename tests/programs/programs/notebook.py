# SPDX-License-Identifier: Apache-2.0
"""A notebook (nbclient, ipykernel) whose training cell is run twice, so that it calls init twice in one process."""
# needs: nbclient nbformat ipykernel
# launch: python {script} launched
# steps: 20

import nbclient
import nbformat

SETUP = """
import time, torch
import tierckpt  # <- tierckpt
torch.manual_seed(0)
inputs, targets = torch.randn(256, 16), torch.randn(256, 4)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
step = 0
"""
TRAIN = """
ckpt = tierckpt.init(model=model, optimizer=optimizer, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < UNTIL:
    rows = torch.randint(0, 256, (16,))
    loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {loss.item()!r}", flush=True)
    time.sleep(0.02)  # as if the model were larger
"""
END = """
ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(1)}, "final.pt")
"""



class Client(nbclient.NotebookClient):
    """Prints what the cells print."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "stream":
            print(msg["content"]["text"], end="", flush=True)
        return super().process_message(msg, cell, cell_index)


cells = [SETUP, TRAIN.replace("UNTIL", "8"), TRAIN.replace("UNTIL", "20"), END]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
Client(notebook, timeout=300, kernel_name="python3").execute()
