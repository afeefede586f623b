# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from fake_client import FakeClient
from tierckpt import LayoutError, UnsupportedError
from tierckpt.state.records import RecordTable, pieces_of, whole


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


def test_records_that_share_a_look_are_looked_at_once():
    """A look takes time for the whole model. One for each record would keep a model of thousands of tensors waiting."""
    looks = []

    def look():
        looks.append(1)

    records = [whole(f"w{number}", lambda: torch.ones(2), None, eager=False, look=look) for number in range(50)]
    RecordTable(records)
    assert len(looks) == 1
    assert len(pieces_of(records)) == 50
    assert len(looks) == 2


def test_refresh_leaves_a_tensor_that_stayed():
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    table.refresh(client)
    assert client.moved == {}


def test_refresh_reports_a_tensor_that_moved():
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    holder.tensor = torch.zeros(3)
    table.refresh(client)
    assert client.moved == {0: holder.tensor.data_ptr()}


def test_other_strides_over_the_same_memory_are_saved_in_c_order():
    holder = Holder(torch.arange(9.0).reshape(3, 3))
    table, client = registered(holder)
    table.refresh(client)
    holder.tensor.data = holder.tensor.data.t()
    table.refresh(client)
    table.fill()
    assert client.moved[0] != holder.tensor.data_ptr() and held(table).equal(holder.tensor)


def held(table):
    """The bytes that the library copies."""
    return table._rows[0]._staging


NOT_IN_C_ORDER = {
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.arange(3.0).reshape(3, 1).expand(3, 4),
    "a part": lambda: torch.arange(20.0).reshape(4, 5)[1:3, ::2],
    "conjugated": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "complex128, transposed": lambda: torch.randn(3, 2, dtype=torch.complex128).t(),
    "float8, transposed": lambda: torch.randn(3, 2).to(torch.float8_e4m3fnuz).t(),
}


@pytest.mark.parametrize("kind", NOT_IN_C_ORDER)
def test_tensors_that_are_not_in_c_order_are_restored(kind):
    tensor = NOT_IN_C_ORDER[kind]()
    table, client = registered(Holder(tensor))
    before, strides = tensor.clone(), tensor.stride()
    table.refresh(client)
    table.fill()
    assert held(table).is_contiguous() and client.records[0]["address"] == held(table).data_ptr()
    tensor[(0,) * tensor.dim()] = 0
    table.pour()
    assert tensor.stride() == strides
    assert torch.equal(bits(tensor.to(before.dtype).view_as(before)), bits(before))


def bits(tensor):
    """The contents of a tensor of any type as bytes in C order."""
    return tensor.contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("tensor, dtype, shape", [
    (torch.ones(2, dtype=torch.complex128), "F64", (2, 2)), (torch.ones(2, dtype=torch.complex64), "C64", (2,)),
    (torch.ones(2).to(torch.float8_e5m2), "F8_E5M2", (2,)), (torch.ones(2).to(torch.float8_e5m2fnuz), "U8", (2,)),
    (torch.ones(0, 3), "F32", (0, 3)), (torch.tensor(1.5), "F32", ())])
def test_unusual_tensors_are_saved_in_place(tensor, dtype, shape):
    table, client = registered(Holder(tensor))
    record, = client.records
    assert record["dtype"] == dtype and record["address"] == tensor.data_ptr()
    assert tuple(record["global_shape"]) == tuple(record["local_shape"]) == shape
    table.refresh(client)
    assert client.moved == {}


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


class Wrapper(torch.Tensor):
    """A tensor class whose tensors consist of others, but which behaves like a dense tensor."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError


def freed_view():
    """As FSDP leaves them behind: the address of a view is not 0, although there is no memory."""
    whole = torch.ones(4)
    view = whole[2:]
    whole.untyped_storage().resize_(0)
    return view


@pytest.mark.parametrize("tensor, reason, remedy", [
    (torch.ones(2, device="meta"), "is on the meta device", "to_empty"),
    (torch.ones(2, 2).to_sparse(), "layout torch.sparse_coo", "to_dense"),
    (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "a quantized tensor", "int_repr"),
    (torch.ones([1] * 9), "9 dimensions", "flattened"),
    (freed_view(), "memory that was freed", "clone"),
    (torch.Tensor._make_wrapper_subclass(Wrapper, (2,)), "no memory of its own", "before it is converted"),
])
def test_refusal_names_tensor_reason_and_remedy(tensor, reason, remedy):
    with pytest.raises(UnsupportedError, match=f"^w .*{reason}.*{remedy}.*") as refusal:
        table_of(Holder(tensor))
    assert "\n" not in str(refusal.value)


def test_a_tensor_that_was_written_to_is_named_and_has_a_staging_copy_from_then_on():
    holder = Holder(torch.ones(3))
    table, client = registered(holder)
    table.refresh(client)
    table.versions.note()
    assert table.versions.changed() == []
    holder.tensor.add_(1)
    assert table.versions.changed() == ["w"]
    table.refresh(client)
    table.fill()
    assert held(table).tolist() == [2, 2, 2] and client.moved[0] == held(table).data_ptr()


def test_tensors_of_inference_mode_which_count_no_versions_have_a_staging_copy():
    with torch.inference_mode():
        tensor = torch.ones(3)
    table, client = registered(Holder(tensor))
    table.refresh(client)
    table.versions.note()
    assert held(table) is not None and table.versions.changed() == []
