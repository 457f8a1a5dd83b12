"""A program's traffic is read from its text: tiles, memories, loops, slices, updates in place, nested fusions."""

import pytest

from benchmarks.lib.hbm_traffic import PARTS, find_arrays, measure_traffic

TEXT = """HloModule jit_train_step, is_scheduled=true

%fused_computation.1 (table: f32[1000,128], rows: s32[16]) -> f32[16,128] {
  %table = f32[1000,128]{1,0:T(8,128)} parameter(0)
  %rows = s32[16]{0:T(128)} parameter(1)
  ROOT %gather = f32[16,128]{1,0:T(8,128)} gather(%table, %rows), offset_dims={1}
}

%fused_computation.2 (stack: f32[4,8,128], one: f32[1,8,128]) -> f32[4,8,128] {
  %stack = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  %one = f32[1,8,128]{2,1,0:T(8,128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %updated = f32[4,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%stack, %one, %zero, %zero, %zero)
}

%taken (stack: f32[4,8,128], i: s32[]) -> f32[8,128] {
  %stack = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  %slice = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%stack, %i, %zero, %zero), dynamic_slice_sizes={1,8,128}
  ROOT %flat = f32[8,128]{1,0:T(8,128)} bitcast(%slice)
}

%same (stack: f32[4,8,128]) -> f32[4,8,128] {
  %stack = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  ROOT %copy = f32[4,8,128]{2,1,0:T(8,128)} copy(%stack)
}

%fused_computation.3 (from: f32[4,8,128], to: f32[4,8,128], i: s32[]) -> (f32[8,128], f32[4,8,128]) {
  %from = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  %to = f32[4,8,128]{2,1,0:T(8,128)} parameter(1)
  %i = s32[]{:T(128)} parameter(2)
  %layer = f32[8,128]{1,0:T(8,128)} fusion(%from, %i), kind=kLoop, calls=%taken
  %to.1 = f32[4,8,128]{2,1,0:T(8,128)} fusion(%to), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%same
  %row = f32[1,8,128]{2,1,0:T(8,128)} bitcast(%layer)
  %updated = f32[4,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%to.1, %row, %i, %zero, %zero)
  ROOT %both = (f32[8,128]{1,0:T(8,128)}, f32[4,8,128]{2,1,0:T(8,128)}) tuple(%layer, %updated)
}

%put (stack: f32[4,8,128], row: f32[1,8,128]) -> f32[4,8,128] {
  %stack = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  %row = f32[1,8,128]{2,1,0:T(8,128)} parameter(1)
  ROOT %put.1 = f32[4,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%stack, %row, %zero, %zero, %zero)
}

%fused_computation.4 (stack: f32[4,8,128], row: f32[1,8,128]) -> f32[4,8,128] {
  %stack = f32[4,8,128]{2,1,0:T(8,128)} parameter(0)
  %row = f32[1,8,128]{2,1,0:T(8,128)} parameter(1)
  ROOT %all = f32[4,8,128]{2,1,0:T(8,128)} fusion(%stack, %row), output_to_operand_aliasing={{}: (0, {})}, calls=%put
}

%condition (p: (s32[], f32[8,128])) -> pred[] {
  %three = s32[]{:T(128)} constant(3)
  ROOT %lt = pred[]{:T(512)} compare(%i, %three), direction=LT
}

%body (p: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %p = (s32[], f32[8,128]{1,0:T(8,128)}) parameter(0)
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%p), index=1
  %again = f32[8,128]{1,0:T(8,128)S(1)} negate(%x), metadata={op_name="jit(train_step)/jvp(M)/layers_0/dropout/neg"}
}

ENTRY %main (w: f32[1000,128]) -> f32[4,8,128] {
  %w = f32[1000,128]{1,0:T(8,128)} parameter(0), \
metadata={op_name="state.params[\\'encoder\\'][\\'layers_0\\'][\\'feed_forward\\'][\\'output\\'][\\'kernel\\']"}
  %ids = s32[16]{0:T(128)S(1)} parameter(1)
  %stack.1 = f32[4,8,128]{2,1,0:T(8,128)} parameter(2)
  %taken = f32[16,128]{1,0:T(8,128)} fusion(%w, %ids), kind=kLoop, calls=%fused_computation.1, \
metadata={op_name="jit(train_step)/jvp(M)/encode/embedding/word/gather"}
  %near = (f32[1000,128]{1,0:T(8,128)S(1)}, f32[1000,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%w)
  %near.1 = f32[1000,128]{1,0:T(8,128)S(1)} copy-done(%near)
  %scores = bf16[2,3,8,100]{3,2,1,0:T(8,128)(2,1)} dot(%near.1, %ids), \
metadata={op_name="jit(train_step)/jvp(M)/layers_1/attention/bhlm,bmhj->blhj/dot_general"}
  %query = bf16[8,128]{1,0:T(8,128)(2,1)} add(%ids), \
metadata={op_name="jit(train_step)/jvp(M)/layers_1/attention/query/add"}
  %one.1 = f32[1,8,128]{2,1,0:T(8,128)S(1)} slice(%stack.1), metadata={op_name="jit(train_step)/slice"}
  %both.1 = (f32[8,128]{1,0:T(8,128)}, f32[4,8,128]{2,1,0:T(8,128)}) fusion(%stack.1, %stack.1, %index), kind=kLoop, \
calls=%fused_computation.3, metadata={op_name="jit(train_step)/jvp(M)/layers_2/norm/mul"}
  %put.2 = f32[4,8,128]{2,1,0:T(8,128)} fusion(%stack.1, %one.1), kind=kLoop, \
calls=%fused_computation.4, metadata={op_name="jit(train_step)/jvp()/sharding_constraint"}
  ROOT %out = f32[4,8,128]{2,1,0:T(8,128)} fusion(%stack.1, %one.1), kind=kLoop, calls=%fused_computation.2, \
metadata={op_name="jit(train_step)/add"}
  %loop = (s32[], f32[8,128]{1,0}) while(%tuple), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(
    ("shape", "size", "on_chip"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 4096, False),
        ("bf16[2,100]{1,0:T(8,128)(2,1)S(1)}", 8 * 128 * 2, True),
        ("bf16[100,2]{0,1:T(8,128)(2,1)}", 8 * 128 * 2, False),  # the first axis is the minor one
        ("f32[5]{0:T(128)}", 512, False),
        ("u32[]{:S(2)}", 4, True),
        ("f32[3,5]", 60, False),
    ],
)
def test_an_array_takes_whole_tiles_of_its_memory(shape, size, on_chip):
    (array,) = find_arrays(shape)
    assert (array.size, array.on_chip) == (size, on_chip)


def test_the_traffic_of_a_program():
    tile, row = 8 * 128 * 4, 128 * 4
    traffic = measure_traffic(TEXT, 7)
    assert tuple(traffic.hbm) == PARTS and traffic.accessed == 7
    assert traffic.hbm == {
        "attention": 2 * 3 * 8 * 128 * 2,
        "projections": 8 * 128 * 2,
        "feed-forward": 1000 * row,  # the kernel's transfer to the chip
        # Once per iteration; a nested fusion reads a slice, and another aliases its operand, which is then updated.
        "norms, residuals, dropout": 3 * tile + (tile + tile + tile),
        "embedding and heads": 2 * 16 * row,  # the gather reads the rows that it returns
        # A slice is read, two others written in place; the condition compares a number.
        "optimizer": tile + (tile + tile) + 5,
    }
    ids = 512
    assert traffic.vmem == ids + 1000 * row + (1000 * row + ids) + ids + 3 * tile + (tile + tile + tile)
    assert traffic.total == sum(traffic.hbm.values())
