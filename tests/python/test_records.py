# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from fake_client import FakeClient

from tierckpt import LayoutError, Unsupported
from tierckpt.records import RecordTable, whole


class Holder:
    def __init__(self, tensor):
        self.tensor = tensor


def table_of(holder):
    return RecordTable([whole("w", lambda: holder.tensor, None, eager=False)])


def registered(holder):
    table, client = table_of(holder), FakeClient()
    table.add_to(client)
    return table, client


def test_record_points_at_the_tensor():
    holder = Holder(torch.ones(3, 4, dtype=torch.bfloat16))
    _, client = registered(holder)
    assert client.records[0]["address"] == holder.tensor.data_ptr()
    assert client.records[0]["dtype"] == "BF16"
    assert tuple(client.records[0]["global_shape"]) == (3, 4)


def test_refresh_leaves_a_tensor_that_stayed():
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    table.refresh(client)
    assert client.moved == {}


def test_refresh_tells_of_a_tensor_that_moved():
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    holder.tensor = torch.zeros(3)
    table.refresh(client)
    assert client.moved == {0: holder.tensor.data_ptr()}


def test_refresh_notices_other_strides_over_the_same_memory():
    holder = Holder(torch.ones(3, 3))
    table, client = registered(holder)
    table.refresh(client)
    holder.tensor.data = holder.tensor.data.t()
    with pytest.raises(Unsupported, match="not contiguous"):
        table.refresh(client)


def test_refresh_notices_another_shape_over_the_same_memory():
    holder = Holder(torch.ones(4, 3))
    table, client = registered(holder)
    table.refresh(client)
    holder.tensor.data = holder.tensor.data[:2]
    with pytest.raises(LayoutError, match="w was registered as"):
        table.refresh(client)


@pytest.mark.parametrize("other", [torch.ones(4), torch.ones(3, dtype=torch.float64)])
def test_refresh_refuses_another_shape_or_dtype(other):
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    holder.tensor = other
    with pytest.raises(LayoutError, match="w was registered as"):
        table.refresh(client)


@pytest.mark.parametrize("tensor, reason", [
    (torch.ones(3, 4).t(), "not contiguous"),
    (torch.ones(2, device="meta"), "only tensors on the CPU or a CUDA device"),
    (torch.ones(2, 2).to_sparse(), "layout"),
    (torch.ones(2, dtype=torch.complex128), "dtype"),
    (torch.ones([1] * 9), "9 dimensions"),
])
def test_refusal_names_tensor_and_reason(tensor, reason):
    with pytest.raises(Unsupported, match=f"w .*{reason}"):
        table_of(Holder(tensor))
